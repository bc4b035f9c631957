# thread: https://github.com/NVIDIA-NeMo/Automodel/pull/2995
"""Grouped experts with an all-gather token dispatcher over the expert-parallel mesh."""
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


@dataclass
class MoEConfig:
    dim: int
    moe_inter_dim: int
    n_routed_experts: int
    n_activated_experts: int
    route_scale: float = 1.0


class _AllGatherV(torch.autograd.Function):
    """Variable-length all-gather along dim 0."""

    @staticmethod
    def forward(ctx, x, sizes, group):
        ctx.sizes, ctx.group = sizes, group
        parts = [x.new_empty((n,) + x.shape[1:]) for n in sizes]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim=0)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        rank = dist.get_rank(ctx.group)
        return grad.split(ctx.sizes)[rank].contiguous(), None, None


class _ReduceScatterV(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, sizes, group):
        ctx.sizes, ctx.group = sizes, group
        x = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(x, group=group)
        return x.split(sizes)[dist.get_rank(group)].contiguous()

    @staticmethod
    def backward(ctx, grad):
        parts = [grad.new_empty((n,) + grad.shape[1:]) for n in ctx.sizes]
        dist.all_gather(parts, grad.contiguous(), group=ctx.group)
        return torch.cat(parts, dim=0), None, None


def _gather_sizes(n, device, group):
    local = torch.tensor([n], device=device)
    sizes = [torch.empty_like(local) for _ in range(dist.get_world_size(group))]
    dist.all_gather(sizes, local, group=group)
    return [int(s) for s in sizes]


def _gather_plain(x, sizes, group):
    parts = [x.new_empty((n,) + x.shape[1:]) for n in sizes]
    dist.all_gather(parts, x.contiguous(), group=group)
    return torch.cat(parts, dim=0)


class Gate(nn.Module):
    def __init__(self, cfg: MoEConfig):
        super().__init__()
        self.cfg = cfg
        self.weight = nn.Parameter(torch.empty(cfg.n_routed_experts, cfg.dim).normal_(std=0.02))

    def forward(self, x):
        scores = F.linear(x, self.weight).softmax(dim=-1, dtype=torch.float32)
        weights, indices = scores.topk(self.cfg.n_activated_experts, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True) * self.cfg.route_scale
        return weights.type_as(x), indices


class GroupedExperts(nn.Module):
    def __init__(self, cfg: MoEConfig, ep_group):
        super().__init__()
        self.cfg, self.ep_group = cfg, ep_group
        world = dist.get_world_size(ep_group)
        self.n_local = cfg.n_routed_experts // world
        self.start = dist.get_rank(ep_group) * self.n_local
        self.gate_and_up = nn.Parameter(torch.empty(self.n_local, 2 * cfg.moe_inter_dim, cfg.dim).normal_(std=0.02))
        self.down = nn.Parameter(torch.empty(self.n_local, cfg.dim, cfg.moe_inter_dim).normal_(std=0.02))

    def forward(self, x, weights, indices):
        sizes = _gather_sizes(x.size(0), x.device, self.ep_group)
        x = _AllGatherV.apply(x, sizes, self.ep_group)
        indices = _gather_plain(indices, sizes, self.ep_group)
        weights = _AllGatherV.apply(weights, sizes, self.ep_group)

        y = torch.zeros_like(x)
        for i in range(self.n_local):
            token, slot = torch.where(indices == self.start + i)
            gate, up = F.linear(x[token], self.gate_and_up[i]).chunk(2, dim=-1)
            out = F.linear(F.silu(gate) * up, self.down[i]) * weights[token, slot].unsqueeze(-1)
            y = y.index_add(0, token, out)
        return _ReduceScatterV.apply(y, sizes, self.ep_group)


class MoE(nn.Module):
    def __init__(self, cfg: MoEConfig, ep_group):
        super().__init__()
        self.gate = Gate(cfg)
        self.experts = GroupedExperts(cfg, ep_group)

    def forward(self, x):
        shape = x.shape
        x = x.view(-1, shape[-1])
        weights, indices = self.gate(x)
        return self.experts(x, weights, indices).view(shape)
