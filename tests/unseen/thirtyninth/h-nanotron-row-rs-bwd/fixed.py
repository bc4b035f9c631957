"""Row-parallel linear, reduce-scatter mode, with overlapped backward communication."""
import torch
import torch.distributed as dist
from torch import nn


class _RowLinearAsyncCommunication(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, weight, group):
        # tensor: [s, in / tp], weight: [out, in / tp]
        ctx.group = group
        ctx.save_for_backward(tensor, weight)
        out = nn.functional.linear(tensor, weight)
        sharded = torch.empty(
            out.shape[0] // group.size(), *out.shape[1:], dtype=out.dtype, device=out.device
        )
        dist.reduce_scatter_tensor(sharded, out, op=dist.ReduceOp.SUM, group=group)
        return sharded

    @staticmethod
    def backward(ctx, grad_output):
        # grad_output: [s / tp, out]
        tensor, weight = ctx.saved_tensors
        group = ctx.group
        grad_output = grad_output.contiguous()
        total_grad_output = torch.empty(
            tensor.shape[0], weight.shape[0], dtype=grad_output.dtype, device=grad_output.device
        )
        handle = dist.all_gather_into_tensor(total_grad_output, grad_output, group=group, async_op=True)
        handle.wait()
        grad_tensor = total_grad_output.matmul(weight)
        grad_weight = total_grad_output.t().matmul(tensor)
        return grad_tensor, grad_weight, None


class TensorParallelRowLinear(nn.Module):
    def __init__(self, in_features, out_features, pg):
        super().__init__()
        self.pg = pg
        self.weight = nn.Parameter(torch.empty(out_features, in_features // pg.size()))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x):
        return _RowLinearAsyncCommunication.apply(x, self.weight, self.pg)
