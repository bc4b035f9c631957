"""Differentiable all-gather whose backward is a reduce-scatter."""
import torch
import torch.distributed as dist


def _reduce_scatter(output, inputs, group):
    dist.reduce_scatter(output, [t.contiguous() for t in inputs], group=group)
    return output


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, tensor):
        ctx.group, ctx.shape = group, tensor.shape
        out = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
        dist.all_gather(out, tensor.contiguous(), group=group)
        return tuple(out)

    @staticmethod
    def backward(ctx, *grad_outputs):
        rank = dist.get_rank(ctx.group)
        gx = torch.empty_like(grad_outputs[rank])
        _reduce_scatter(gx.contiguous(), grad_outputs, ctx.group)  # BUG: result lost when gx is not contiguous
        return None, gx
