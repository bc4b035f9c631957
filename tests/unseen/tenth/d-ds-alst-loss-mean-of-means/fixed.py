"""SFT training step under Ulysses sequence parallelism (DeepSpeed ALST)."""
import torch
import torch.distributed.nn.functional
import deepspeed


def sft_loss(logits, shift_labels, sp_group, sp_world_size):
    # logits, shift_labels: this rank's slice of the sequence; prompts carry -100 labels
    loss = torch.nn.functional.cross_entropy(
        logits.float().view(-1, logits.size(-1)), shift_labels.view(-1), ignore_index=-100, reduction="sum"
    )
    good_tokens = (shift_labels != -100).sum()
    loss = loss / good_tokens.clamp(min=1)
    losses_per_rank = torch.distributed.nn.functional.all_gather(loss, group=sp_group)
    good_tokens_per_rank = torch.distributed.nn.functional.all_gather(good_tokens, group=sp_group)
    total_loss = sum(losses_per_rank[rank] * good_tokens_per_rank[rank] for rank in range(sp_world_size))
    return total_loss / max(sum(good_tokens_per_rank), 1)


def train(model, config, loader, sp_group, sp_world_size):
    model, _, _, _ = deepspeed.initialize(config=config, model=model, model_parameters=model.parameters())
    for batch in loader:
        shift_labels = batch.pop("shift_labels")
        logits = model(**batch).logits
        loss = sft_loss(logits, shift_labels, sp_group, sp_world_size)
        model.backward(loss)
        model.step()
