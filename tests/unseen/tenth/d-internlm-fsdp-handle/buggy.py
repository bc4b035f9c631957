"""Optimizer for FSDP models whose shard group is smaller than the data-parallel group.

InternLM/InternLM 056996f8b31e, internlm/solver/optimizer/fsdp_optimizer.py
"""
import torch
import torch.distributed as dist
from internlm.core.context import ParallelMode
from internlm.core.context import global_context as gpc


def reduce_tensor(tensor, dst_rank=None, parallel_mode=ParallelMode.DATA):
    group = gpc.get_group(parallel_mode)
    if dst_rank is None:
        handle = dist.all_reduce(tensor=tensor, group=group, op=dist.ReduceOp.AVG, async_op=True)
    else:
        global_rank = gpc.get_ranks_in_group(parallel_mode)[dst_rank]
        handle = dist.reduce(tensor=tensor, dst=global_rank, group=group, op=dist.ReduceOp.AVG, async_op=True)
    return handle


class FSDPadaptOptimizer:
    def __init__(self, optimizer, clip_grad_norm):
        self.optim = optimizer
        self._clip_grad_norm = clip_grad_norm

    def _compute_norm_with_fsdp_flatten(self, params):
        norm_sq = torch.stack([p.grad.float().norm() ** 2 for p in params]).sum()
        dist.all_reduce(norm_sq, group=gpc.get_group(ParallelMode.ZERO1))
        return norm_sq.sqrt()

    def step(self):
        # in case that fsdp-zero3 size is not equal to dp size
        # FSDP module will only reduce gradient within FSDP process group
        # so manually reduce grad is essential between two parallel FSDP process group
        params = [p for group in self.optim.param_groups for p in group["params"] if p.requires_grad]
        for param in params:
            reduce_tensor(tensor=param.grad, parallel_mode=ParallelMode.ZERO3_DP)  # BUG

        total_norm = self._compute_norm_with_fsdp_flatten(params)
        clip = torch.clamp(self._clip_grad_norm / (total_norm + 1e-6), max=1.0)
        for param in params:
            param.grad.mul_(clip)
        self.optim.step()
        return total_norm
