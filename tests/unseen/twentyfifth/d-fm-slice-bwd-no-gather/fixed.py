# fastmoe 704092b ("Fix input grad in mp group"): FMoE slices an input that is replicated in the mp group with
# plain indexing, so each rank's input gradient is zero outside its own slice.
import torch
import torch.nn as nn
from torch.autograd import Function

from fmoe.functions import MOEGather, MOEScatter, moe_prepare_forward


class AllGather(Function):
    """Replicates the slices; whatever follows is computed alike on all ranks of the group."""

    @staticmethod
    def forward(ctx, inp, rank, world_size, group):
        tensor_list = [torch.empty_like(inp) for _ in range(world_size)]
        torch.distributed.all_gather(tensor_list, inp.contiguous(), group=group)
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
        ctx.args = world_size, group
        return inp[local_batch_size * rank:local_batch_size * (rank + 1)].clone()

    @staticmethod
    def backward(ctx, grad_out):
        world_size, group = ctx.args
        tensor_list = [torch.empty_like(grad_out) for _ in range(world_size)]
        torch.distributed.all_gather(tensor_list, grad_out.contiguous(), group=group)
        return torch.cat(tensor_list, dim=0), None, None, None


class FMoE(nn.Module):
    r'''
    `mp_group`: workers in the group hold the same copy of the input feature, and demand the same copy of the
    output. FMoE saves computation by slicing the input in the mp group and performing all-gather after the MLP
    computation. The gate is frozen (hash routing).
    '''
    def __init__(self, num_expert, d_model, world_size, mp_group, gate, experts, top_k=1):
        super().__init__()
        self.num_expert, self.d_model, self.world_size = num_expert, d_model, world_size
        self.mp_group, self.mp_size, self.mp_rank = mp_group, mp_group.size(), mp_group.rank()
        self.gate, self.experts, self.top_k = gate, experts, top_k

    def forward(self, inp):
        if self.mp_size > 1:
            inp = Slice.apply(inp, self.mp_rank, self.mp_size, self.mp_group)

        gate_top_k_idx, _ = self.gate(inp)
        (pos, local_expert_count, global_expert_count, fwd_expert_count,
            fwd_batch_size) = moe_prepare_forward(gate_top_k_idx, self.num_expert, self.world_size)
        x = MOEScatter.apply(inp, pos, local_expert_count, global_expert_count, fwd_batch_size, self.world_size)
        x = self.experts(x, fwd_expert_count)
        x = MOEGather.apply(x, pos, local_expert_count, global_expert_count, inp.shape[0], self.world_size)

        if self.mp_size > 1:
            x = AllGather.apply(x, self.mp_rank, self.mp_size, self.mp_group)
        return x
