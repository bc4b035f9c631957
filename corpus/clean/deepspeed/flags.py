"""One layer, many flags: tensor parallel or not, sequence parallel or not, overlapped or not, with a bias before or after the sum."""

# spmd: mesh dense = dp, tp
from dataclasses import dataclass
from typing import Optional

import deepspeed.comm as dist
import torch
import torch.nn as nn
import torch.nn.functional as F
from deepspeed.utils import groups


@dataclass(frozen=True)
class LayerConfig:
    hidden: int = 1024
    inner: int = 4096
    sequence_parallel: bool = False
    overlap: bool = True
    fuse_bias: bool = False
    checkpoint: bool = False

    def __post_init__(self):
        if self.fuse_bias and self.sequence_parallel:
            raise ValueError("the fused bias needs the all-reduce")


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group, overlap):
        ctx.group, ctx.overlap = group, overlap
        out = torch.empty((x.shape[0] * dist.get_world_size(group), *x.shape[1:]), dtype=x.dtype, device=x.device)
        handle = dist.all_gather_into_tensor(out, x.contiguous(), group=group, async_op=overlap)
        if overlap:
            handle.wait()
        return out

    @staticmethod
    def backward(ctx, grad):
        size = dist.get_world_size(ctx.group)
        out = torch.empty((grad.shape[0] // size, *grad.shape[1:]), dtype=grad.dtype, device=grad.device)
        handle = dist.reduce_scatter_tensor(out, grad.contiguous(), group=ctx.group, async_op=ctx.overlap)
        if ctx.overlap:
            handle.wait()
        return out, None, None


class Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = torch.empty((x.shape[0] // dist.get_world_size(group), *x.shape[1:]), dtype=x.dtype, device=x.device)
        dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        size = dist.get_world_size(ctx.group)
        out = torch.empty((grad.shape[0] * size, *grad.shape[1:]), dtype=grad.dtype, device=grad.device)
        dist.all_gather_into_tensor(out, grad.contiguous(), group=ctx.group)
        return out, None


class Identity(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class MLP(nn.Module):
    def __init__(self, config: LayerConfig, mp_group: Optional[object] = None):
        super().__init__()
        self.config = config
        self.group = mp_group if mp_group is not None else groups.get_tensor_model_parallel_group()
        size = dist.get_world_size(self.group)
        self.rank = dist.get_rank(self.group)
        self.up = nn.Parameter(torch.empty(config.inner // size, config.hidden))  # spmd: {tp: S(0)}
        self.down = nn.Parameter(torch.empty(config.hidden, config.inner // size))  # spmd: {tp: S(1)}
        self.bias = nn.Parameter(torch.zeros(config.hidden))

    def compute(self, x):
        if self.config.sequence_parallel:
            x = Gather.apply(x, self.group, self.config.overlap)
        else:
            x = Identity.apply(x, self.group)
        hidden = F.silu(F.linear(x, self.up))
        if self.config.fuse_bias:
            # Only one rank adds it, so the sum has it once.
            out = F.linear(hidden, self.down, self.bias if self.rank == 0 else None)
        else:
            out = F.linear(hidden, self.down)
        if self.config.sequence_parallel:
            return Scatter.apply(out, self.group)
        return Sum.apply(out, self.group)

    def forward(self, x):
        if self.config.checkpoint and self.training:
            out = torch.utils.checkpoint.checkpoint(self.compute, x, use_reentrant=False)
        else:
            out = self.compute(x)
        if not self.config.fuse_bias:
            out = out + self.bias
        return x + out


def reduce_replicated(model, config, group):
    """Biases that saw a part of the sequence, or only one rank, have partial gradients."""
    if not (config.sequence_parallel or config.fuse_bias):
        return
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad, group=group)
