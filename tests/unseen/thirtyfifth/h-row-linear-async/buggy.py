"""Row-parallel linear with reduce-scattered output."""
# thread: huggingface/nanotron#172
import torch
import torch.distributed as dist
import torch.nn.functional as F


def all_gather_rows(x, group):
    out = torch.empty(x.size(0) * group.size(), *x.shape[1:], dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out


class RowLinearReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, group):
        # x: [tokens, in / tp]; weight: [out, in / tp]
        ctx.save_for_backward(x, weight)
        ctx.group = group
        partial = F.linear(x, weight)
        out = torch.empty(x.size(0) // group.size(), weight.size(0), dtype=x.dtype, device=x.device)
        dist.reduce_scatter_tensor(out, partial, group=group)
        return out

    @staticmethod
    def backward(ctx, grad_output):
        # grad_output: [tokens / tp, out]
        x, weight = ctx.saved_tensors
        full_grad = all_gather_rows(grad_output, ctx.group)
        grad_x = all_gather_rows(grad_output @ weight, ctx.group)  # BUG: rows of the others used their weight shards
        grad_weight = full_grad.t() @ x
        return grad_x, grad_weight, None
