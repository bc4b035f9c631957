# thread: https://github.com/inclusionAI/AReno/pull/496
"""Latent attention projections split over the tensor-parallel group."""
import torch
import torch.distributed as dist
from torch import nn


class CopyToTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class GatherSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        world = dist.get_world_size(group)
        out = x.new_empty(x.size(0) * world, *x.shape[1:])
        dist.all_gather_into_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        world = dist.get_world_size(ctx.group)
        out = grad.new_empty(grad.size(0) // world, *grad.shape[1:])
        dist.reduce_scatter_tensor(out, grad.contiguous(), group=ctx.group)
        return out, None


class LatentProjection(nn.Module):
    """hidden -> low-rank q/kv on every rank -> local heads."""

    def __init__(self, hidden, q_rank, kv_rank, rope_dim, head_dim, local_heads, group, sequence_parallel):
        super().__init__()
        self.group = group
        self.sequence_parallel = sequence_parallel
        self.kv_rank, self.rope_dim = kv_rank, rope_dim
        self.q_a = nn.Linear(hidden, q_rank, bias=False)
        self.q_norm = nn.LayerNorm(q_rank)
        self.kv_a = nn.Linear(hidden, kv_rank + rope_dim, bias=False)
        self.kv_norm = nn.LayerNorm(kv_rank)
        self.q_b = nn.Linear(q_rank, local_heads * (head_dim + rope_dim), bias=False)
        self.kv_b = nn.Linear(kv_rank, local_heads * 2 * head_dim, bias=False)
        for module in (self.q_a, self.q_norm, self.kv_a, self.kv_norm):
            for p in module.parameters():
                p.tp_grad_sum = sequence_parallel

    def enter(self, x):
        if self.sequence_parallel:
            return GatherSequence.apply(x, self.group)
        return CopyToTP.apply(x, self.group)

    def forward(self, hidden):
        q = self.q_b(self.enter(self.q_norm(self.q_a(hidden))))
        latent, k_rope = self.kv_a(hidden).split([self.kv_rank, self.rope_dim], dim=-1)
        kv = self.kv_b(self.enter(self.kv_norm(latent)))
        k_rope = self.enter(k_rope)
        return q, kv, k_rope


class TrainingManager:
    def __init__(self, model, optimizer, tp_group, dp_group):
        self.model, self.optimizer = model, optimizer
        self.tp_group, self.dp_group = tp_group, dp_group

    @torch.no_grad()
    def reduce_gradients(self):
        dp_size = dist.get_world_size(self.dp_group)
        for p in self.model.parameters():
            if p.grad is None:
                continue
            if getattr(p, "tp_grad_sum", False):
                dist.all_reduce(p.grad, group=self.tp_group)
            dist.all_reduce(p.grad, group=self.dp_group)
            p.grad.div_(dp_size)

    def train_step(self, loss):
        loss.backward()
        self.reduce_gradients()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
