"""Create the process groups of tensor and data parallelism.

Source: hand-made group set-ups in training code (from memory). new_group has to be entered by all
processes of the world, members or not, in the same order. Here a process creates only the groups
it belongs to, so the set-up hangs or joins groups that do not match.
"""
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass
class ParallelGroups:
    tp: dist.ProcessGroup
    dp: dist.ProcessGroup


def _group_of(rank_lists, rank):
    mine = None
    for ranks in rank_lists:
        if rank in ranks:
            mine = dist.new_group(ranks)  # BUG
    return mine


def init_groups(tp_size):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    assert world_size % tp_size == 0
    dp_size = world_size // tp_size
    tp_lists = [list(range(i * tp_size, (i + 1) * tp_size)) for i in range(dp_size)]
    dp_lists = [list(range(i, world_size, tp_size)) for i in range(tp_size)]
    return ParallelGroups(tp=_group_of(tp_lists, rank), dp=_group_of(dp_lists, rank))


@torch.no_grad()
def reduce_gradients(model, groups):
    dp_size = dist.get_world_size(groups.dp)
    for p in model.parameters():
        if p.requires_grad:
            dist.all_reduce(p.grad, group=groups.dp)
            p.grad.div_(dp_size)


def train(build_model, loader, loss_fn, tp_size):
    groups = init_groups(tp_size)
    model = build_model(groups.tp)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for inputs, targets in loader(dist.get_rank(groups.dp), dist.get_world_size(groups.dp)):
        optimizer.zero_grad()
        loss_fn(model(inputs), targets).backward()
        reduce_gradients(model, groups)
        optimizer.step()
