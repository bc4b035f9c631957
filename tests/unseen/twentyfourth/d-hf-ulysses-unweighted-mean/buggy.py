"""Loss of the Trainer under Ulysses sequence parallelism.

After huggingface/transformers PR #41832 (src/transformers/trainer.py) and the ALST tutorial of DeepSpeed.
"""
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn
import torch.nn.functional as F


def shard_batch(batch, sp_rank, sp_size):
    """Cut a full batch along the sequence; labels are shifted before the cut."""
    labels = F.pad(batch["labels"], (0, 1), value=-100)[:, 1:]
    positions = torch.arange(batch["input_ids"].size(1), device=labels.device)
    positions = positions.expand_as(batch["input_ids"])

    def cut(x):
        return x.chunk(sp_size, dim=1)[sp_rank].contiguous()

    return {
        "input_ids": cut(batch["input_ids"]),
        "position_ids": cut(positions),
        "shift_labels": cut(labels),
    }


class UlyssesTrainer:
    """The model is sharded over all dp x sp ranks; its gradients are averaged over them."""

    def __init__(self, model, optimizer, sp_group):
        self.model, self.optimizer, self.sp_group = model, optimizer, sp_group
        self.sp_size, self.sp_rank = dist.get_world_size(sp_group), dist.get_rank(sp_group)

    def local_loss(self, inputs):
        """Mean over the valid tokens of this rank's shard, and their number."""
        shift_labels = inputs.pop("shift_labels")
        logits = self.model(**inputs).logits
        good_tokens = (shift_labels != -100).sum()
        loss = F.cross_entropy(
            logits.flatten(0, 1).float(), shift_labels.flatten(), ignore_index=-100, reduction="sum"
        )
        return loss / good_tokens.clamp(min=1), good_tokens

    def compute_loss(self, inputs):
        loss, good_tokens = self.local_loss(inputs)
        # differentiable gather; its backward sums the gradients of the ranks
        losses_per_rank = torch.stack(dist_nn.all_gather(loss, group=self.sp_group))
        return losses_per_rank.mean(), good_tokens  # BUG: shards hold different numbers of valid tokens

    def training_step(self, batch):
        inputs = shard_batch(batch, self.sp_rank, self.sp_size)
        loss, good_tokens = self.compute_loss(inputs)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach(), good_tokens
