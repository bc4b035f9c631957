# awslabs/slapo pull request 20 (commit c5f1886)
"""Sequence-parallel transformer with an all-gather before attention and after the final norm."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


def all_gather_along_dim(inp, dim, group):
    inp = inp.contiguous()
    parts = [torch.empty_like(inp) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, inp, group=group)
    return torch.cat(parts, dim=dim)


def reduce_scatter_along_dim(inp, dim, group):
    temp = inp.transpose(0, dim).contiguous()
    ret = temp.new_empty(temp.shape[0] // dist.get_world_size(group), *temp.shape[1:])
    dist.reduce_scatter_tensor(ret, temp, group=group)
    return ret.transpose(0, dim).contiguous()


def scatter_along_dim(inp, dim, group):
    return inp.chunk(dist.get_world_size(group), dim=dim)[dist.get_rank(group)].contiguous()


class _AllGatherForwardOutput(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inp, dim, group, tensor_parallel_output_grad=True):
        ctx.dim, ctx.group = dim, group
        ctx.tensor_parallel_output_grad = tensor_parallel_output_grad
        return all_gather_along_dim(inp, dim, group)

    @staticmethod
    def backward(ctx, grad_output):
        if ctx.tensor_parallel_output_grad:
            ret = reduce_scatter_along_dim(grad_output, ctx.dim, ctx.group)
        else:
            ret = scatter_along_dim(grad_output, ctx.dim, ctx.group)
        return ret, None, None, None


class _ReduceScatterForwardOutput(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inp, dim, group):
        ctx.dim, ctx.group = dim, group
        return reduce_scatter_along_dim(inp, dim, group)

    @staticmethod
    def backward(ctx, grad_output):
        return all_gather_along_dim(grad_output, ctx.dim, ctx.group), None, None


class Attention(nn.Module):
    def __init__(self, qkv_shard: nn.Linear, out_proj_shard: nn.Linear, hidden, head_dim, group):
        super().__init__()
        self.qkv, self.out_proj, self.head_dim, self.group = qkv_shard, out_proj_shard, head_dim, group
        self.ln = nn.LayerNorm(hidden)  # on the sequence shard, gradient summed over TP by the runtime

    def forward(self, x):
        # x: [b, s / tp, h]; qkv holds the heads of this rank
        h = _AllGatherForwardOutput.apply(self.ln(x), 1, self.group)
        qkv = self.qkv(h).unflatten(-1, (3, -1, self.head_dim)).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(*qkv, is_causal=True).transpose(1, 2).flatten(2)
        return x + _ReduceScatterForwardOutput.apply(self.out_proj(out), 1, self.group)


def lm_logits(x, final_ln, lm_head, group):
    # the head is replicated and every rank computes the whole sequence
    return lm_head(_AllGatherForwardOutput.apply(final_ln(x), 1, group, False))
