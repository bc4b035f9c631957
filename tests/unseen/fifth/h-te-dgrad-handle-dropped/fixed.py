"""Column-parallel linear that overlaps the input-gradient reduction with the weight gradient."""
import torch
import torch.distributed as dist


class LinearWithOverlap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, group):
        ctx.save_for_backward(x, weight)
        ctx.group = group
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        grad_input = grad_output @ weight
        handle = dist.all_reduce(grad_input, group=ctx.group, async_op=True)
        grad_weight = grad_output.flatten(0, 1).t() @ x.flatten(0, 1)
        handle.wait()
        return grad_input, grad_weight, None
