"""Sequence-parallel column projection with a hand-written backward."""
import torch
import torch.distributed as dist
from megatron.core.parallel_state import get_global_memory_buffer


def _gather_rows(x, group):
    """All-gather along dim 0 into the shared workspace."""
    shape = (x.size(0) * group.size(), *x.shape[1:])
    out = get_global_memory_buffer().get_tensor(shape, x.dtype, "mpu")
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out


class SequenceParallelLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, group):
        total = _gather_rows(x, group)
        ctx.group = group
        ctx.save_for_backward(x, weight)
        return total @ weight.t()

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        total = _gather_rows(x, ctx.group)
        grad_total = (grad_output @ weight).contiguous()
        shape = (grad_total.size(0) // ctx.group.size(), *grad_total.shape[1:])
        grad_x = torch.empty(shape, dtype=grad_total.dtype, device=grad_total.device)
        dist.reduce_scatter_tensor(grad_x, grad_total, group=ctx.group)
        grad_weight = grad_output.flatten(0, 1).t() @ total.flatten(0, 1)
        return grad_x, grad_weight, None


def mlp(x, w_in, w_out, group, reduce_scatter):
    h = torch.nn.functional.gelu(SequenceParallelLinear.apply(x, w_in, group))
    return reduce_scatter(h @ w_out.t())
