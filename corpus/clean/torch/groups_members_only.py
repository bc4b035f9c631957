"""Collectives of a group that only its members reach: an early return for the others, ranks of the last stage, a source by global rank."""

import torch
import torch.distributed as dist


def stage_group(stage_ranks):
    group = dist.new_group(stage_ranks)
    if dist.get_rank() not in stage_ranks:
        return None
    dist.broadcast(torch.zeros(1, device="cuda"), src=stage_ranks[0], group=group)
    return group


def sync_tied(weight, group):
    if group is None:
        return
    dist.all_reduce(weight.grad, group=group)


def last_stage_metrics(loss, pp_rank, pp_size, dp_group):
    if pp_rank == pp_size - 1:
        dist.all_reduce(loss, op=dist.ReduceOp.AVG, group=dp_group)
        return loss.item()
    return None


def send_weights(model, group):
    src = dist.get_process_group_ranks(group)[0]
    for p in model.parameters():
        dist.broadcast(p.data, src, group=group)
