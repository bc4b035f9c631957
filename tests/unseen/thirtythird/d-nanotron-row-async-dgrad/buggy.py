"""Row-parallel linear in reduce-scatter mode with overlapped communication.

Source: https://github.com/huggingface/nanotron/pull/172
Wrong: backward multiplies the local slice of grad_output with the local weight and gathers the
products. Slice r then comes out of rank r's weight shard, and all ranks get the same input
gradient; only 1/tp of it is right.
Repair: gather grad_output and multiply all of it with the local weight.
"""
import torch
import torch.distributed as dist


class _RowLinearAsyncCommunication(torch.autograd.Function):
    """tensor [n, in / tp] (all tokens), weight [out, in / tp] -> [n / tp, out]."""

    @staticmethod
    def forward(ctx, tensor, weight, group):
        ctx.save_for_backward(tensor, weight)
        ctx.group = group
        partial = tensor @ weight.t()
        out = partial.new_empty(partial.size(0) // group.size(), partial.size(1))
        dist.reduce_scatter_tensor(out, partial, group=group)
        return out

    @staticmethod
    def backward(ctx, grad_output):
        tensor, weight = ctx.saved_tensors
        group = ctx.group
        grad_output = grad_output.contiguous()
        rows = grad_output.size(0)

        total_grad_output = grad_output.new_empty(rows * group.size(), grad_output.size(1))
        handle = dist.all_gather_into_tensor(total_grad_output, grad_output, group=group, async_op=True)
        local_grad = grad_output @ weight
        handle.wait()
        grad_weight = total_grad_output.t() @ tensor

        grad_tensor = torch.empty_like(tensor)
        dist.all_gather_into_tensor(grad_tensor, local_grad, group=group)  # BUG: mixes the weight shards
        return grad_tensor, grad_weight, None


class TensorParallelRowLinear(torch.nn.Module):
    def __init__(self, in_features, out_features, pg):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(out_features, in_features // pg.size()))
        self.pg = pg

    def forward(self, x):
        return _RowLinearAsyncCommunication.apply(x, self.weight, self.pg)
