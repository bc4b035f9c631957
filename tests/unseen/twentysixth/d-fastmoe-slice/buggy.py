# fastmoe 704092b
"""Mixture of experts inside a model-parallel group that shares its input."""
import torch
import torch.distributed as dist
from torch import nn
from torch.autograd import Function


class AllGather(Function):
    """The result is used identically on every rank of the group."""

    @staticmethod
    def forward(ctx, inp, rank, world_size, group):
        parts = [torch.empty_like(inp) for _ in range(world_size)]
        dist.all_gather(parts, inp.contiguous(), group=group)
        ctx.args = rank, inp.shape[0]
        return torch.cat(parts, dim=0)

    @staticmethod
    def backward(ctx, grad_out):
        rank, dim0 = ctx.args
        return grad_out[rank * dim0:(rank + 1) * dim0], None, None, None


class FMoE(nn.Module):
    def __init__(self, gate, expert_fn, mp_group):
        super().__init__()
        self.gate, self.expert_fn, self.mp_group = gate, expert_fn, mp_group
        self.mp_rank, self.mp_size = dist.get_rank(mp_group), dist.get_world_size(mp_group)

    def forward(self, inp):
        # inp: [tokens, d_model], the same on all ranks of mp_group
        local = inp.shape[0] // self.mp_size
        x = inp[self.mp_rank * local:(self.mp_rank + 1) * local]  # BUG: each rank gets the input gradient of its rows only
        gate_idx, gate_score = self.gate(x)
        y = self.expert_fn(x, gate_idx, gate_score)
        return AllGather.apply(y, self.mp_rank, self.mp_size, self.mp_group)


def allreduce_gate_grads(moe: FMoE):
    for p in moe.gate.parameters():  # replicated, has seen this rank's rows only
        dist.all_reduce(p.grad, group=moe.mp_group)
