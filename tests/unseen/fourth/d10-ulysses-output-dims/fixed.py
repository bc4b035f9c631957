"""Ulysses attention: heads are scattered before and gathered after attention (yunchang style)."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


def all_to_all_4D(x, scatter_idx, gather_idx, group):
    world = dist.get_world_size(group)
    inputs = [t.contiguous() for t in torch.tensor_split(x, world, scatter_idx)]
    outputs = [torch.empty_like(inputs[0]) for _ in range(world)]
    dist.all_to_all(outputs, inputs, group=group)
    return torch.cat(outputs, dim=gather_idx).contiguous()


class SeqAllToAll4D(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, x, scatter_idx, gather_idx):
        ctx.group, ctx.scatter_idx, ctx.gather_idx = group, scatter_idx, gather_idx
        return all_to_all_4D(x, scatter_idx, gather_idx, group)

    @staticmethod
    def backward(ctx, grad):
        return None, all_to_all_4D(grad, ctx.gather_idx, ctx.scatter_idx, ctx.group), None, None


class UlyssesAttention(nn.Module):
    """q, k, v: [batch, seq / sp, heads, dim]"""

    def __init__(self, sequence_process_group=None, scatter_idx=2, gather_idx=1):
        super().__init__()
        self.spg = sequence_process_group
        self.scatter_idx, self.gather_idx = scatter_idx, gather_idx

    def forward(self, query, key, value, causal=True):
        q = SeqAllToAll4D.apply(self.spg, query, self.scatter_idx, self.gather_idx)
        k = SeqAllToAll4D.apply(self.spg, key, self.scatter_idx, self.gather_idx)
        v = SeqAllToAll4D.apply(self.spg, value, self.scatter_idx, self.gather_idx)
        out = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=causal
        ).transpose(1, 2)
        return SeqAllToAll4D.apply(self.spg, out, self.gather_idx, self.scatter_idx)
