"""Diffusion transformer whose tokens are split over a sequence-parallel group.

After hpcaitech/Open-Sora (opensora/acceleration/communications.py and models/stdit, grad_scale).
"""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


def _split(x, group, dim):
    return x.chunk(dist.get_world_size(group), dim=dim)[dist.get_rank(group)].contiguous()


def _gather(x, group, dim):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, x.contiguous(), group=group)
    return torch.cat(parts, dim=dim)


def _scale(grad, group, grad_scale):
    if grad_scale == "up":
        return grad * dist.get_world_size(group)
    if grad_scale == "down":
        return grad / dist.get_world_size(group)
    return grad


class _SplitForwardGatherBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group, dim, grad_scale):
        ctx.args = group, dim, grad_scale
        return _split(x, group, dim)

    @staticmethod
    def backward(ctx, grad):
        group, dim, grad_scale = ctx.args
        return _gather(_scale(grad, group, grad_scale), group, dim), None, None, None


class _GatherForwardSplitBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group, dim, grad_scale):
        ctx.args = group, dim, grad_scale
        return _gather(x, group, dim)

    @staticmethod
    def backward(ctx, grad):
        group, dim, grad_scale = ctx.args
        return _split(_scale(grad, group, grad_scale), group, dim), None, None, None


def split_forward_gather_backward(x, group, dim, grad_scale=None):
    return _SplitForwardGatherBackward.apply(x, group, dim, grad_scale)


def gather_forward_split_backward(x, group, dim, grad_scale=None):
    return _GatherForwardSplitBackward.apply(x, group, dim, grad_scale)


class STDiT(nn.Module):
    def __init__(self, patch_dim, hidden, blocks, sp_group):
        super().__init__()
        self.sp_group = sp_group
        self.x_embedder = nn.Linear(patch_dim, hidden)
        self.t_embedder = nn.Sequential(nn.Linear(256, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        self.blocks = nn.ModuleList(blocks)  # attention exchanges tokens inside sp_group
        self.final_layer = nn.Linear(hidden, patch_dim)

    def forward(self, patches, t_freq):
        # patches: [B, N, patch_dim], the same on each rank of sp_group
        x = self.x_embedder(patches)
        t = self.t_embedder(t_freq)
        x = split_forward_gather_backward(x, self.sp_group, dim=1)  # BUG: undoes nothing of the "up" below
        for block in self.blocks:
            x = block(x, t)
        # each rank only back-propagates its own tokens, and the wrapper averages over sp ranks too
        x = gather_forward_split_backward(x, self.sp_group, dim=1, grad_scale="up")
        return self.final_layer(x)


def build(model, device):
    return DDP(model.to(device), device_ids=[device])  # all ranks: dp x sp


def train_step(ddp, batch, optimizer):
    # noise and timestep come from the loader, equal inside a sequence-parallel group
    noisy, target, t_freq = batch["noisy"], batch["target"], batch["t_freq"]
    loss = (ddp(noisy, t_freq) - target).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
