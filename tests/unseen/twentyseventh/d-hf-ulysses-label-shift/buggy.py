"""Causal LM loss when each sequence-parallel rank gets a contiguous part of the sequence."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


def shard_batch(batch, sp_group):
    rank, world = dist.get_rank(sp_group), dist.get_world_size(sp_group)
    input_ids, labels = batch["input_ids"], batch["labels"]
    position_ids = torch.arange(input_ids.size(1), device=input_ids.device).expand_as(input_ids)
    local = [t.chunk(world, dim=1)[rank] for t in (input_ids, labels, position_ids)]
    return dict(zip(("input_ids", "labels", "position_ids"), local))


def compute_loss(model, batch, sp_group):
    shard = shard_batch(batch, sp_group)
    logits = model(input_ids=shard["input_ids"], position_ids=shard["position_ids"]).logits
    logits, labels = logits[:, :-1], shard["labels"][:, 1:]  # BUG: the first label of every later shard is never predicted
    loss_sum = F.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), ignore_index=-100, reduction="sum"
    )
    num_tokens = (labels != -100).sum()
    dist.all_reduce(num_tokens, group=sp_group)
    # gradients are averaged over data x sequence ranks
    return loss_sum * dist.get_world_size(sp_group) / num_tokens
