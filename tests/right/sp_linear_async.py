"""Sequence-parallel column linear in the manner of Megatron: gather, product, asynchronous reduce-scatter."""
import torch
import torch.distributed as dist


class SPColumn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, group, wgrad_in_main):
        ctx.save_for_backward(x, weight)
        ctx.group, ctx.main = group, wgrad_in_main
        n = dist.get_world_size(group)
        total = x.new_empty((x.size(0) * n, *x.shape[1:]))
        dist.all_gather_into_tensor(total, x.contiguous(), group=group)
        return total.matmul(weight.t())

    @staticmethod
    def backward(ctx, grad_out):
        x, weight = ctx.saved_tensors
        group = ctx.group
        n = dist.get_world_size(group)
        need_w = ctx.needs_input_grad[1]
        if need_w:
            total = x.new_empty((x.size(0) * n, *x.shape[1:]))
            gather = dist.all_gather_into_tensor(total, x.contiguous(), group=group, async_op=True)
        grad_total = grad_out.matmul(weight)
        if need_w:
            gather.wait()
        grad_x = x.new_empty(x.shape)
        scatter = dist.reduce_scatter_tensor(grad_x, grad_total.contiguous(), group=group, async_op=True)
        if not need_w:
            scatter.wait()
            return grad_x, None, None, None
        g2, x2 = grad_out.flatten(0, -2), total.flatten(0, -2)
        if ctx.main and hasattr(weight, "main_grad"):
            weight.main_grad.addmm_(g2.t(), x2)
            grad_w = None
        else:
            grad_w = g2.t().matmul(x2)
        scatter.wait()
        return grad_x, grad_w, None, None


class Column(torch.nn.Module):
    def __init__(self, hidden, out, group, main=False):
        super().__init__()
        self.group, self.main = group, main
        self.weight = torch.nn.Parameter(torch.empty(out // dist.get_world_size(group), hidden))
        torch.nn.init.normal_(self.weight, std=0.02)

    def forward(self, x):
        return SPColumn.apply(x, self.weight, self.group, self.main)
