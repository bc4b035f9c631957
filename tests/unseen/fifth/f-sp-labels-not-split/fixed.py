"""Sequence-parallel forward pass with labels."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


def loss_step(model, input_ids, labels, sp_group):
    rank, world = dist.get_rank(sp_group), dist.get_world_size(sp_group)
    ids = input_ids.chunk(world, dim=1)[rank]
    target = labels.chunk(world, dim=1)[rank]
    logits = model(ids)
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())
