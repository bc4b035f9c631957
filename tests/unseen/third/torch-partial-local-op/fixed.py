"""Row-parallel output scaled by a fused local kernel ahead of its reduction."""
# Source: pytorch/pytorch issue 172932 (confirmed from the thread)
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor


class ResidualScale(torch.autograd.Function):
    """Stand-in for a fused kernel that accepts plain tensors only."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x * scale

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.scale, None


class ScaledFeedForward(nn.Module):
    def __init__(self, dim, hidden, tp_mesh, residual_scale):
        super().__init__()
        self.tp_mesh, self.residual_scale = tp_mesh, residual_scale
        self.w1 = nn.Parameter(distribute_tensor(torch.empty(hidden, dim), tp_mesh, [Shard(0)]))
        self.w2 = nn.Parameter(distribute_tensor(torch.empty(dim, hidden), tp_mesh, [Shard(1)]))

    def forward(self, x: DTensor):
        # x: Replicate on tp
        h = F.gelu(F.linear(x, self.w1))
        out = F.linear(h, self.w2)
        assert out.placements == (Partial(),)
        local = out.to_local(grad_placements=[Replicate()])
        local = ResidualScale.apply(local, self.residual_scale)
        out = DTensor.from_local(local, self.tp_mesh, [Partial()], run_check=False)
        return out.redistribute(placements=[Replicate()])


class Block(nn.Module):
    def __init__(self, dim, hidden, tp_mesh, residual_scale):
        super().__init__()
        self.norm = nn.Parameter(distribute_tensor(torch.ones(dim), tp_mesh, [Replicate()]))
        self.ffn = ScaledFeedForward(dim, hidden, tp_mesh, residual_scale)

    def forward(self, x: DTensor):
        return x + self.ffn(F.rms_norm(x, (x.size(-1),), self.norm))
