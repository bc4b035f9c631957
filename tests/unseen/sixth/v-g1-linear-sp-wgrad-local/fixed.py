"""Linear with a sequence-parallel input."""
import torch
import torch.distributed as dist


def _gather(x, group):
    out = torch.empty(x.size(0) * dist.get_world_size(group), *x.shape[1:], dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out


class LinearSP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, group):
        ctx.save_for_backward(x, weight)
        ctx.group = group
        return _gather(x, group) @ weight.t()

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        total_x = _gather(x, ctx.group)
        grad_x = grad_output @ weight
        out = torch.empty_like(x)
        dist.reduce_scatter_tensor(out, grad_x, group=ctx.group)
        grad_w = grad_output.flatten(0, -2).t() @ total_x.flatten(0, -2)
        return out, grad_w, None
