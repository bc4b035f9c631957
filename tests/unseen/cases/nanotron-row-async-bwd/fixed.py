"""Row-parallel linear with asynchronous communication (reduce-scatter mode)."""
import torch
import torch.distributed as dist


def gather_first_dim(x, group):
    out = torch.empty(x.shape[0] * group.size(), *x.shape[1:], dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out


class _RowLinearAsyncCommunication(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, weight, group):
        ctx.save_for_backward(tensor, weight)
        ctx.group = group
        out = tensor @ weight.t()  # partial over tp
        result = torch.empty(out.shape[0] // group.size(), *out.shape[1:], dtype=out.dtype, device=out.device)
        dist.reduce_scatter_tensor(result, out.contiguous(), group=group)
        return result

    @staticmethod
    def backward(ctx, grad_output):
        tensor, weight = ctx.saved_tensors
        total_grad_output = gather_first_dim(grad_output, ctx.group)
        grad_tensor = total_grad_output @ weight
        grad_weight = total_grad_output.flatten(0, -2).t() @ tensor.flatten(0, -2)
        return grad_tensor, grad_weight, None
