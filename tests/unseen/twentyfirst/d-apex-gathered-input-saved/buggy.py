"""Column-parallel linear on a sequence shard, gathered into a reused buffer."""
import math
import torch
import torch.distributed as dist

_BUFFERS = {}


def get_buffer(shape, dtype, device):
    n = math.prod(shape)
    buf = _BUFFERS.get(dtype)
    if buf is None or buf.numel() < n:
        buf = _BUFFERS[dtype] = torch.empty(n, dtype=dtype, device=device)
    return buf[:n].view(shape)


def gather(x, group):
    out = get_buffer((x.size(0) * group.size(), *x.shape[1:]), x.dtype, x.device)
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out


class LinearWithGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, group):
        total = gather(x, group)
        ctx.save_for_backward(total, weight)  # BUG: the next layer gathers into the same memory
        ctx.group = group
        return total.matmul(weight.t())

    @staticmethod
    def backward(ctx, g):
        total, weight = ctx.saved_tensors
        grad_weight = g.flatten(0, -2).t().matmul(total.flatten(0, -2))
        grad_total = g.matmul(weight).contiguous()
        n, *rest = grad_total.shape
        grad_x = torch.empty(n // ctx.group.size(), *rest, dtype=g.dtype, device=g.device)
        dist.reduce_scatter_tensor(grad_x, grad_total, group=ctx.group)
        return grad_x, grad_weight, None
