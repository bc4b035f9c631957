import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim, group):
        ctx.dim, ctx.group = dim, group
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim=dim)

    @staticmethod
    def backward(ctx, grad):
        parts = grad.chunk(dist.get_world_size(ctx.group), dim=ctx.dim)
        return parts[dist.get_rank(ctx.group)], None, None


def wrap(model, groups):
    return DistributedDataParallel(model, process_group=groups.dp_sp_group)


def step(model, x, y, groups, optimizer):
    sp = groups.sp_group.size()
    out = Gather.apply(model(x), 1, groups.sp_group)
    loss = F.mse_loss(out, y)
    loss.backward()
    for p in model.parameters():
        p.grad *= sp
    optimizer.step()
