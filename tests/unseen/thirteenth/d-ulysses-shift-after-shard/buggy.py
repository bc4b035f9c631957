"""Causal language modelling loss when the sequence is split over a sequence-parallel group.

Source: huggingface/transformers PR #36607, snowflakedb/ArcticTraining PR #45.
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F


class UlyssesSPDataLoader:
    """Every rank of the group reads the same batch and keeps its part of the sequence."""

    def __init__(self, dl, sp_group):
        self.dl = dl
        self.sp_rank = dist.get_rank(sp_group)
        self.sp_world_size = dist.get_world_size(sp_group)

    def __iter__(self):
        for batch in self.dl:
            seq_len = batch["input_ids"].size(1)
            batch["position_ids"] = torch.arange(seq_len).expand_as(batch["input_ids"])
            yield {k: v.chunk(self.sp_world_size, dim=1)[self.sp_rank] for k, v in batch.items()}


def causal_lm_loss(logits, labels, dp_sp_group):
    labels = F.pad(labels[:, 1:], (0, 1), value=-100)  # BUG
    loss = F.cross_entropy(
        logits.float().flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum"
    )
    num_tokens = (labels != -100).sum()
    dist.all_reduce(num_tokens, group=dp_sp_group)
    # the engine averages gradients over dp_sp_group
    return loss * dist.get_world_size(dp_sp_group) / num_tokens.clamp(min=1)


def train(engine, dl, sp_group, dp_sp_group, device):
    for batch in UlyssesSPDataLoader(dl, sp_group):
        batch = {k: v.to(device) for k, v in batch.items()}
        labels = batch.pop("labels")
        logits = engine(**batch).logits
        engine.backward(causal_lm_loss(logits, labels, dp_sp_group))
        engine.step()
