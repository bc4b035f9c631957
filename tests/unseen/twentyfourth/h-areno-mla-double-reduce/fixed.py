"""Latent attention projections: replicated down projections, column-parallel up projections.

After inclusionAI/AReno PR #496 (Bailing V2 and V3 MLA, `TrainingManager`).
"""
import torch
import torch.distributed as dist
import torch.nn as nn


class _Copy(torch.autograd.Function):
    """Identity; the gradient is summed over the group."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class _GatherSequence(torch.autograd.Function):
    """All-gather of the rows; the gradient is reduce-scattered."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = torch.empty(x.size(0) * dist.get_world_size(group), *x.shape[1:], dtype=x.dtype, device=x.device)
        dist.all_gather_into_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        n = grad.size(0) // dist.get_world_size(ctx.group)
        out = torch.empty(n, *grad.shape[1:], dtype=grad.dtype, device=grad.device)
        dist.reduce_scatter_tensor(out, grad.contiguous(), group=ctx.group)
        return out, None


class MLAProjection(nn.Module):
    def __init__(self, hidden, q_rank, kv_rank, rope_dim, heads, head_dim, tp_group, sequence_parallel):
        super().__init__()
        self.tp_group, self.sequence_parallel = tp_group, sequence_parallel
        self.kv_rank, self.rope_dim, self.head_dim = kv_rank, rope_dim, head_dim
        self.local_heads = heads // dist.get_world_size(tp_group)
        self.q_a = nn.Linear(hidden, q_rank, bias=False)
        self.q_norm = nn.RMSNorm(q_rank)
        self.kv_a = nn.Linear(hidden, kv_rank + rope_dim, bias=False)
        self.kv_norm = nn.RMSNorm(kv_rank)
        self.q_b = nn.Linear(q_rank, self.local_heads * (head_dim + rope_dim), bias=False)
        self.kv_b = nn.Linear(kv_rank, self.local_heads * 2 * head_dim, bias=False)
        for module in (self.q_a, self.q_norm, self.kv_a, self.kv_norm):
            for p in module.parameters():
                p.tp_sum_grad = sequence_parallel

    def _to_heads(self, x):
        """Input of rank-local heads: complete rows, gradient summed over the TP ranks."""
        fn = _GatherSequence if self.sequence_parallel else _Copy
        return fn.apply(x, self.tp_group)

    def forward(self, x):
        # x: [tokens, hidden], this rank's rows under sequence parallelism
        q = self.q_b(self._to_heads(self.q_norm(self.q_a(x))))
        compressed, k_rope = self.kv_a(x).split([self.kv_rank, self.rope_dim], dim=-1)
        kv = self.kv_b(self._to_heads(self.kv_norm(compressed)))
        k_rope = self._to_heads(k_rope)
        q = q.view(-1, self.local_heads, self.head_dim + self.rope_dim)
        k, v = kv.view(-1, self.local_heads, 2 * self.head_dim).chunk(2, dim=-1)
        k = torch.cat([k, k_rope.unsqueeze(1).expand(-1, self.local_heads, -1)], dim=-1)
        return q, k, v


class TrainingManager:
    def __init__(self, model, tp_group, dp_group):
        self.model, self.tp_group, self.dp_group = model, tp_group, dp_group

    def reduce_gradients(self):
        for p in self.model.parameters():
            if p.grad is None:
                continue
            if getattr(p, "tp_sum_grad", False):
                dist.all_reduce(p.grad, group=self.tp_group)
            p.grad.div_(dist.get_world_size(self.dp_group))
            dist.all_reduce(p.grad, group=self.dp_group)
