"""Diffusion transformer training step, sequence gathered before the loss."""
# thread: ByteDance-Seed/VeOmni#1120
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class GatherOutputs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim, group):
        ctx.dim, ctx.group = dim, group
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim=dim)

    @staticmethod
    def backward(ctx, grad):
        world, rank = dist.get_world_size(ctx.group), dist.get_rank(ctx.group)
        return grad.chunk(world, dim=ctx.dim)[rank], None, None  # BUG: DDP divides by the sequence ranks as well


def wrap(model, ps, device):
    return DDP(model, device_ids=[device], process_group=ps.dp_sp_group)  # mean over data x sequence ranks


def train_step(ddp, latents, target, t, ps, optimizer):
    shard = latents.chunk(ps.sp_size, dim=1)[ps.sp_rank]
    pred = ddp(shard, t)  # attention inside is Ulysses
    pred = GatherOutputs.apply(pred, 1, ps.sp_group)
    loss = F.mse_loss(pred, target)  # the same value on all ranks of sp_group
    loss.backward()
    torch.nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
