# thread: https://github.com/NVIDIA-BioNeMo/bionemo-recipes/pull/1449
"""Causal LM step on sequences that a context-parallel group shares."""
import torch
import torch.distributed as dist
import torch.nn.functional as F

IGNORE = -100


def zigzag_chunk(tensor, cp_size, cp_rank):
    """Chunks r and 2n-1-r of the token dimension."""
    chunks = tensor.chunk(2 * cp_size, dim=1)
    return torch.cat([chunks[cp_rank], chunks[2 * cp_size - 1 - cp_rank]], dim=1)


class ContextParallelCollator:
    def __init__(self, pad_token_id, cp_size, cp_rank):
        self.pad_token_id, self.cp_size, self.cp_rank = pad_token_id, cp_size, cp_rank

    def pad(self, rows):
        multiple = 2 * self.cp_size
        longest = max(len(r) for r in rows)
        longest = (longest + multiple - 1) // multiple * multiple
        ids = torch.full((len(rows), longest), self.pad_token_id)
        labels = torch.full((len(rows), longest), IGNORE)
        for i, r in enumerate(rows):
            ids[i, : len(r)] = torch.tensor(r)
            labels[i, : len(r)] = torch.tensor(r)
        return ids, labels

    def __call__(self, rows):
        ids, labels = self.pad(rows)
        labels = F.pad(labels[:, 1:], (0, 1), value=IGNORE)
        batch = {
            "input_ids": ids,
            "position_ids": torch.arange(ids.shape[1]).expand_as(ids),
            "labels": labels,
        }
        return {
            k: zigzag_chunk(v, self.cp_size, self.cp_rank).contiguous()
            for k, v in batch.items()
        }


def token_loss(logits, labels):
    return F.cross_entropy(
        logits.float().flatten(0, 1), labels.flatten(), ignore_index=IGNORE, reduction="sum"
    )


def train_step(model, batch, optimizer, dp_cp_group):
    """model is wrapped by FSDP over dp_cp_group; its attention knows the cp group."""
    batch = {k: v.cuda(non_blocking=True) for k, v in batch.items()}
    labels = batch.pop("labels")
    count = (labels != IGNORE).sum().float()
    dist.all_reduce(count, group=dp_cp_group)
    logits = model(**batch).logits
    loss = token_loss(logits, labels) / count.clamp(min=1)
    (loss * dist.get_world_size(dp_cp_group)).backward()
    optimizer.step()
    optimizer.zero_grad()
    reported = loss.detach()
    dist.all_reduce(reported, group=dp_cp_group)
    return reported
