"""MoE layer whose batch is split over model-parallel ranks.
laekov/fastmoe 704092b, "Fix input grad in mp group".
"""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.autograd import Function


class AllGather(Function):
    @staticmethod
    def forward(ctx, inp, rank, world_size, group):
        tensor_list = [torch.empty_like(inp) for _ in range(world_size)]
        dist.all_gather(tensor_list, inp.contiguous(), group=group)
        ctx.args = rank, inp.shape[0]
        return torch.cat(tensor_list, dim=0)

    @staticmethod
    def backward(ctx, grad_out):
        rank, dim0 = ctx.args
        return grad_out[rank * dim0:(rank + 1) * dim0], None, None, None


class Slice(Function):
    @staticmethod
    def forward(ctx, inp, rank, world_size, group):
        local_batch_size = inp.shape[0] // world_size
        batch_start = local_batch_size * rank
        ctx.args = world_size, group
        return inp[batch_start:batch_start + local_batch_size].clone()

    @staticmethod
    def backward(ctx, grad_out):
        world_size, group = ctx.args
        tensor_list = [torch.empty_like(grad_out, memory_format=torch.contiguous_format) for _ in range(world_size)]
        dist.all_gather(tensor_list, grad_out.contiguous(), group=group)
        return torch.cat(tensor_list, dim=0), None, None, None


class FMoE(nn.Module):
    """inp is the same on all ranks of mp_group, and so is the returned tensor."""

    def __init__(self, gate, experts, mp_group):
        super().__init__()
        self.gate, self.experts = gate, experts
        self.mp_group = mp_group
        self.mp_rank, self.mp_size = dist.get_rank(mp_group), dist.get_world_size(mp_group)

    def forward(self, inp):
        if self.mp_size > 1:
            inp = Slice.apply(inp, self.mp_rank, self.mp_size, self.mp_group)
        gate_idx, gate_score = self.gate(inp)
        out = self.experts(inp, gate_idx, gate_score)
        if self.mp_size > 1:
            out = AllGather.apply(out, self.mp_rank, self.mp_size, self.mp_group)
        return out

    def allreduce_params(self):
        for p in self.parameters():
            if p.grad is not None:
                dist.all_reduce(p.grad, group=self.mp_group)
