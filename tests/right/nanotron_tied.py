"""Tied parameters as in nanotron: links carry the operation by which their gradients are put together."""
from dataclasses import dataclass
from typing import Optional

import torch
import torch.distributed as dist


@dataclass
class TiedInfo:
    name: str
    ranks: tuple
    reduce_op: Optional[dist.ReduceOp.RedOpType] = None


def tie(param, name, ranks, reduce_op):
    param.tied = TiedInfo(name, tuple(sorted(ranks)), reduce_op)


def create_groups(infos):
    groups = {}
    for ranks in sorted({i.ranks for i in infos}):
        groups[ranks] = dist.new_group(list(ranks))
    return groups


def sync_tied_gradients(model, groups):
    for name, p in sorted(model.named_parameters()):
        info = getattr(p, "tied", None)
        if info is None or info.reduce_op is None:
            # copies whose gradients are equal by construction
            continue
        dist.all_reduce(p.grad, op=info.reduce_op, group=groups[info.ranks])


def mark_norms(model, tp_ranks, sequence_split):
    for name, p in model.named_parameters():
        if "norm" in name:
            tie(p, name, tp_ranks, dist.ReduceOp.SUM if sequence_split else None)


def train_step(model, batches, optimizer, dp_group, groups):
    for b in batches:
        (model(b) / len(batches)).backward()
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=dp_group)
    sync_tied_gradients(model, groups)
    optimizer.step()
    optimizer.zero_grad()
