# the caller of Gather.apply views the buffer as [n, s, h, d] and permutes; backward of the permute gives the reduce_scatter rank-major memory
import torch
import torch.distributed as dist


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group, ctx.shape = group, x.shape
        sizes = list(x.size())
        sizes[1] *= dist.get_world_size(group)
        out = torch.empty(sizes, dtype=x.dtype, device=x.device)
        dist.all_gather_into_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty(ctx.shape)
        dist.reduce_scatter_tensor(out, grad.contiguous(), group=ctx.group)
        return out, None


def gather_heads(x, group):
    n = dist.get_world_size(group)
    s, h, d = x.shape
    return Gather.apply(x, group).reshape(n, s, h, d).permute(1, 0, 2, 3).reshape(s, n * h, d)
