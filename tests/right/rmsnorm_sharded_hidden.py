"""RMSNorm over a hidden dim that is split: the squares are summed forward and backward (Apertus, Chameleon style q-norm)."""
import torch
import torch.distributed as dist
import torch.nn as nn


class SumBoth(torch.autograd.Function):
    """Each rank uses the sum for its own part, so the gradients are summed as well."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class ShardedRMSNorm(nn.Module):
    def __init__(self, hidden, group, eps=1e-6):
        super().__init__()
        n = dist.get_world_size(group)
        self.group, self.hidden, self.eps = group, hidden, eps
        self.weight = nn.Parameter(torch.ones(hidden // n))
        self.weight.tensor_model_parallel = True

    def forward(self, x):
        # x: [s, b, hidden/tp]
        square = x.float().pow(2).sum(-1, keepdim=True)
        mean = SumBoth.apply(square, self.group) / self.hidden
        return (x.float() * torch.rsqrt(mean + self.eps)).type_as(x) * self.weight


class QKNormAttention(nn.Module):
    def __init__(self, hidden, heads, group):
        super().__init__()
        n = dist.get_world_size(group)
        self.heads = heads // n
        self.qkv = nn.Linear(hidden, 3 * hidden // n, bias=False)
        self.q_norm = ShardedRMSNorm(hidden, group)
        self.k_norm = ShardedRMSNorm(hidden, group)
        for p in (self.qkv.weight,):
            p.tensor_model_parallel = True

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).permute(1, 2, 0, 3) for t in (q, k, v))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
