"""Validation loop over packed sequences, FSDP-sharded model.

Reduced from PrimeIntellect-ai/prime-rl 3f5ee350f6 (fix(sft): sync validation iteration to
prevent FSDP deadlock, #2636).
"""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def setup_model(model):
    for layer in model.layers:
        fully_shard(layer)
    return fully_shard(model)


def compute_loss(model, micro_batch, loss_fn):
    logits = model(micro_batch["input_ids"], micro_batch["position_ids"])
    token_loss = loss_fn(logits, micro_batch["target_ids"]) * micro_batch["loss_mask"]
    return token_loss.sum(), micro_batch["loss_mask"].sum()


@torch.no_grad()
def run_eval_loop(model, dataloader, loss_fn):
    """Token-weighted global mean loss; dataloader packs this rank's documents to full length."""
    total_loss_sum = torch.tensor(0.0, device="cuda")
    total_token_count = torch.tensor(0, dtype=torch.int64, device="cuda")

    for micro_batch in dataloader:  # BUG: packing gives each rank another number of batches, each forward all-gathers
        loss_sum, token_count = compute_loss(model, micro_batch, loss_fn)
        total_loss_sum += loss_sum
        total_token_count += token_count

    dist.all_reduce(total_loss_sum)
    dist.all_reduce(total_token_count)
    return total_loss_sum / total_token_count


def validate(model, dataloader, loss_fn):
    return run_eval_loop(setup_model(model), dataloader, loss_fn)
