import torch
import torch.distributed as dist
import torch.nn.functional as F


def _sum_over_ranks(grad):
    total = grad.clone()
    handle = dist.all_reduce(total, async_op=True)
    handle.wait()
    return total


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.rank, ctx.n = dist.get_rank(), x.size(0)
        rows = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(rows, x.contiguous())
        return torch.cat(rows)

    @staticmethod
    def backward(ctx, grad):
        grad = _sum_over_ranks(grad)
        return grad.narrow(0, ctx.rank * ctx.n, ctx.n)


def info_nce(a, b, t):
    n = a.size(0)
    labels = torch.arange(n, device=a.device) + dist.get_rank() * n
    return F.cross_entropy(a @ Gather.apply(b).t() / t, labels)
