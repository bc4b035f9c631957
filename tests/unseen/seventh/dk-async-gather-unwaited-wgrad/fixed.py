"""Sequence-parallel linear that gathers its input again in backward."""
import torch
import torch.distributed as dist


class LinearWithRegather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, group):
        ctx.save_for_backward(x, weight)
        ctx.group = group
        total = torch.empty(x.size(0) * group.size(), *x.shape[1:], dtype=x.dtype, device=x.device)
        dist.all_gather_into_tensor(total, x.contiguous(), group=group)
        return total @ weight.t()

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        group = ctx.group
        total = torch.empty(x.size(0) * group.size(), *x.shape[1:], dtype=x.dtype, device=x.device)
        gather = dist.all_gather_into_tensor(total, x.contiguous(), group=group, async_op=True)
        grad_total = grad_output @ weight
        grad_x = torch.empty_like(x, memory_format=torch.contiguous_format)
        scatter = dist.reduce_scatter_tensor(grad_x, grad_total.contiguous(), group=group, async_op=True)
        gather.wait()
        grad_weight = grad_output.flatten(0, 1).t() @ total.flatten(0, 1)
        scatter.wait()
        return grad_x, grad_weight, None


def project(x, weight_shard, group):
    # x: [s/tp, b, h], weight_shard: [out/tp, h]
    return LinearWithRegather.apply(x, weight_shard, group)
