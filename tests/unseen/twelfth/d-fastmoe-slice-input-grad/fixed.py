"""Mixture of experts layer inside a Megatron model parallel group."""
import torch
import torch.nn as nn
from torch.autograd import Function


class AllGather(Function):
    @staticmethod
    def forward(ctx, inp, rank, world_size, group):
        tensor_list = [torch.empty_like(inp) for _ in range(world_size)]
        torch.distributed.all_gather(tensor_list, inp.contiguous(), group=group)
        output = torch.cat(tensor_list, dim=0)
        ctx.args = rank, inp.shape[0]
        return output

    @staticmethod
    def backward(ctx, grad_out):
        rank, dim0 = ctx.args
        return grad_out[rank * dim0:(rank + 1) * dim0], None, None, None


class Slice(Function):
    @staticmethod
    def forward(ctx, inp, rank, world_size, group):
        local_batch_size = inp.shape[0] // world_size
        ctx.args = world_size, group
        return inp[rank * local_batch_size:(rank + 1) * local_batch_size].clone()

    @staticmethod
    def backward(ctx, grad_out):
        world_size, group = ctx.args
        tensor_list = [torch.empty_like(grad_out) for _ in range(world_size)]
        torch.distributed.all_gather(tensor_list, grad_out.contiguous(), group=group)
        return torch.cat(tensor_list, dim=0), None, None, None


class FMoE(nn.Module):
    """
    `mp_group`: workers in the group hold the same copy of the input feature, and demand the
    same copy of the output. FMoE saves computation by slicing the input in the mp group and
    performing all-gather after the MLP computation.
    """

    def __init__(self, d_model, gate, experts, mp_group=None):
        super().__init__()
        # gate and expert gradients are synchronized by DistributedGroupedDataParallel
        self.d_model, self.gate, self.experts, self.mp_group = d_model, gate, experts, mp_group
        self.mp_size = 1 if mp_group is None else mp_group.size()
        self.mp_rank = 0 if mp_group is None else mp_group.rank()

    def forward(self, inp):
        if self.mp_size > 1:
            inp = Slice.apply(inp, self.mp_rank, self.mp_size, self.mp_group)

        gate_top_k_idx, gate_score = self.gate(inp)
        x = self.experts(inp, gate_top_k_idx)  # (tokens, top_k, d_model)
        x = torch.bmm(gate_score, x).reshape(-1, self.d_model)

        if self.mp_size > 1:
            x = AllGather.apply(x, self.mp_rank, self.mp_size, self.mp_group)
        return x


class TransformerMLP(nn.Module):
    def __init__(self, d_model, moe: FMoE):
        super().__init__()
        self.norm, self.moe = nn.LayerNorm(d_model), moe  # the norm is replicated in the mp group

    def forward(self, x):
        return x + self.moe(self.norm(x).flatten(0, -2)).view_as(x)
