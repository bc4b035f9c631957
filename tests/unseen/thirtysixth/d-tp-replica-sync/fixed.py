# thread: https://github.com/NVIDIA-NeMo/Automodel/pull/3822
"""Tensor-parallel attention with per-head query / key norms, and the optimizer update around it."""
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    hidden_size: int = 2048
    num_heads: int = 16
    head_dim: int = 128
    max_grad_norm: float = 1.0


class _CopyToTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class _ReduceFromTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


class Attention(nn.Module):
    """Heads are divided over the group; the norm weights have head_dim entries on every rank."""

    def __init__(self, cfg: Config, tp_group):
        super().__init__()
        self.tp_group = tp_group
        self.local_heads = cfg.num_heads // dist.get_world_size(tp_group)
        self.head_dim = cfg.head_dim
        width = self.local_heads * cfg.head_dim
        self.q_proj = nn.Linear(cfg.hidden_size, width, bias=False)
        self.k_proj = nn.Linear(cfg.hidden_size, width, bias=False)
        self.v_proj = nn.Linear(cfg.hidden_size, width, bias=False)
        self.o_proj = nn.Linear(width, cfg.hidden_size, bias=False)
        self.q_norm = RMSNorm(cfg.head_dim)
        self.k_norm = RMSNorm(cfg.head_dim)

    def forward(self, x):
        x = _CopyToTP.apply(x, self.tp_group)
        b, s, _ = x.shape
        q, k, v = (p(x).view(b, s, self.local_heads, self.head_dim) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = self.q_norm(q).transpose(1, 2), self.k_norm(k).transpose(1, 2)
        out = F.scaled_dot_product_attention(q, k, v.transpose(1, 2), is_causal=True)
        return _ReduceFromTP.apply(self.o_proj(out.transpose(1, 2).reshape(b, s, -1)), self.tp_group)


PARTIAL_HEAD_SUFFIXES = ("q_norm.weight", "k_norm.weight")


def partial_head_parameters(model):
    return [p for n, p in model.named_parameters() if n.endswith(PARTIAL_HEAD_SUFFIXES)]


@torch.no_grad()
def broadcast_tp_replicas(model, tp_group):
    """Every rank of the group starts from the same replicated values."""
    src = dist.get_global_rank(tp_group, 0)
    for name, param in model.named_parameters():
        if "_proj." not in name:
            dist.broadcast(param, src=src, group=tp_group)


@torch.no_grad()
def synchronize_tp_replica_grads(params, tp_group):
    for param in params:
        if param.grad is not None:
            grad = param.grad.float()
            dist.all_reduce(grad, op=dist.ReduceOp.SUM, group=tp_group)
            param.grad.copy_(grad)


@torch.no_grad()
def clip_grad_norm(model, max_norm, tp_group):
    device = next(model.parameters()).device
    local, replicated = torch.zeros((), device=device), torch.zeros((), device=device)
    for name, param in model.named_parameters():
        if param.grad is None:
            continue
        if "_proj." in name:
            local = local + param.grad.float().pow(2).sum()
        else:
            replicated = replicated + param.grad.float().pow(2).sum()
    dist.all_reduce(local, group=tp_group)
    norm = (local + replicated).sqrt()
    scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for param in model.parameters():
        if param.grad is not None:
            param.grad.mul_(scale)
    return norm


def optimizer_update(model, optimizer, micro_batches, loss_fn, cfg: Config, tp_group):
    optimizer.zero_grad()
    for mb in micro_batches:
        (loss_fn(model(mb["input_ids"]), mb["labels"]) / len(micro_batches)).backward()
    synchronize_tp_replica_grads(partial_head_parameters(model), tp_group)
    grad_norm = clip_grad_norm(model, cfg.max_grad_norm, tp_group)
    optimizer.step()
    return grad_norm
