"""Logits are gathered, so that each rank has the loss of the whole sequence, and the mean of equal losses is that loss."""
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as distF


def loss_on_whole(local_logits, labels, sp_group):
    logits = torch.cat(distF.all_gather(local_logits, group=sp_group), dim=1)
    n = (labels != -100).sum()
    total = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
    loss = total / n
    loss = distF.all_reduce(loss, group=sp_group)
    return loss / dist.get_world_size(sp_group)
