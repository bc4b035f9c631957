"""Loss of a Ulysses sequence-parallel step (written from memory of DeepSpeed ALST and its Trainer integration)."""
import deepspeed
import torch
import torch.distributed as dist
import torch.distributed.nn.functional
import torch.nn.functional as F


def shard_batch(batch, sp_rank, sp_world_size):
    """Shift the labels on the whole sequence, then keep one slice of everything."""
    batch["shift_labels"] = F.pad(batch.pop("labels"), (0, 1), value=-100)[..., 1:]
    return {k: v.chunk(sp_world_size, dim=1)[sp_rank].contiguous() for k, v in batch.items()}


class UlyssesTrainer:
    def __init__(self, engine: deepspeed.DeepSpeedEngine, sp_group):
        # engine: ZeRO averages gradients over all ranks, data and sequence
        self.engine, self.sp_group = engine, sp_group
        self.sp_world_size = dist.get_world_size(sp_group)
        self.sp_rank = dist.get_rank(sp_group)

    def compute_loss(self, batch):
        shift_labels = batch.pop("shift_labels")
        logits = self.engine(**batch).logits
        # prompt tokens are -100, so a slice may have few targets
        loss = F.cross_entropy(
            logits.flatten(0, 1).float(), shift_labels.flatten(), ignore_index=-100
        )
        losses = dist.nn.functional.all_gather(loss, group=self.sp_group)
        good = (shift_labels != -100).sum()
        counts = [torch.empty_like(good) for _ in range(self.sp_world_size)]
        dist.all_gather(counts, good, group=self.sp_group)
        counts = [c.item() for c in counts]
        total = sum(l * c for l, c in zip(losses, counts) if c > 0)
        return total / sum(counts)

    def train_step(self, batch):
        batch = {k: v.to(self.engine.device) for k, v in batch.items()}
        batch = shard_batch(batch, self.sp_rank, self.sp_world_size)
        loss = self.compute_loss(batch)
        self.engine.backward(loss)
        self.engine.step()
        return loss.detach()
