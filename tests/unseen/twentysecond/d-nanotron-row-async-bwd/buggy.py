"""Row-parallel linear in reduce-scatter mode with overlapped communication."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


class _RowLinearAsyncCommunication(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, weight, group):
        # tensor: [n, in/tp], weight: [out, in/tp]
        ctx.save_for_backward(tensor, weight)
        ctx.group = group
        partial = F.linear(tensor, weight)
        out = torch.empty(partial.size(0) // group.size(), partial.size(1), dtype=partial.dtype, device=partial.device)
        dist.reduce_scatter_tensor(out, partial, group=group)
        return out

    @staticmethod
    def backward(ctx, grad_output):
        tensor, weight = ctx.saved_tensors
        n = grad_output.size(0) * ctx.group.size()
        grad_output = grad_output.contiguous()
        total_grad_output = grad_output.new_empty(n, grad_output.size(1))
        handle = dist.all_gather_into_tensor(total_grad_output, grad_output, group=ctx.group, async_op=True)
        sub_grad_tensor = grad_output @ weight
        grad_tensor = sub_grad_tensor.new_empty(n, sub_grad_tensor.size(1))
        dist.all_gather_into_tensor(grad_tensor, sub_grad_tensor, group=ctx.group)  # BUG: rows of other ranks' weights
        handle.wait()
        grad_weight = total_grad_output.t() @ tensor
        return grad_tensor, grad_weight, None
