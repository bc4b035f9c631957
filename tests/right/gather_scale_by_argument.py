import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def _split(x, pg, dim):
    n, r = dist.get_world_size(pg), dist.get_rank(pg)
    return x.chunk(n, dim)[r].contiguous()


def _gather(x, pg, dim):
    n = dist.get_world_size(pg)
    out = [torch.empty_like(x) for _ in range(n)]
    dist.all_gather(out, x.contiguous(), group=pg)
    return torch.cat(out, dim)


class _GatherForwardSplitBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, pg, dim, grad_scale):
        ctx.pg, ctx.dim, ctx.grad_scale = pg, dim, grad_scale
        return _gather(x, pg, dim)

    @staticmethod
    def backward(ctx, g):
        if ctx.grad_scale == "up":
            g = g * dist.get_world_size(ctx.pg)
        elif ctx.grad_scale == "down":
            g = g / dist.get_world_size(ctx.pg)
        return _split(g, ctx.pg, ctx.dim), None, None, None


def gather_forward_split_backward(x, pg, dim, grad_scale=None):
    """up: the sequence is whole after this and DDP averages over sp too; down: the counterpart's scale."""
    return _GatherForwardSplitBackward.apply(x, pg, dim, grad_scale)


def head(x, sp):
    return _GatherForwardSplitBackward.apply(x, sp, 1, "up")
