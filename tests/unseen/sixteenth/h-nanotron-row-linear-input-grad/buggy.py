# huggingface/nanotron pull request 172 (commit 41f11f01)
# With reduce-scatter the row-parallel backward multiplies only its own output-gradient shard with its weight and
# all-gathers the products, so rows of other ranks carry their weight shards instead of this rank's.
"""Row-parallel linear with reduce-scatter of the output and communication overlapped in backward."""
import torch
import torch.distributed as dist
from torch import nn


class _RowLinearAsyncCommunication(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, weight, group):
        # tensor: [b, h_in / n]; weight: [h_out, h_in / n]
        ctx.save_for_backward(tensor, weight)
        ctx.group = group
        partial = tensor.matmul(weight.t()).contiguous()
        out = partial.new_empty(partial.size(0) // dist.get_world_size(group), partial.size(1))
        dist.reduce_scatter_tensor(out, partial, group=group)
        return out

    @staticmethod
    def backward(ctx, grad_output):
        tensor, weight = ctx.saved_tensors
        group = ctx.group
        grad_output = grad_output.contiguous()
        unsharded_batch_size = grad_output.size(0) * dist.get_world_size(group)
        total_grad_output = grad_output.new_empty(unsharded_batch_size, grad_output.size(1))
        handle_0 = dist.all_gather_into_tensor(total_grad_output, grad_output, group=group, async_op=True)

        grad_tensor = grad_output.matmul(weight)  # BUG

        handle_0.wait()
        total_grad_tensor = grad_tensor.new_empty(unsharded_batch_size, grad_tensor.size(1))
        handle_1 = dist.all_gather_into_tensor(total_grad_tensor, grad_tensor, group=group, async_op=True)

        grad_weight = total_grad_output.t().matmul(tensor)
        handle_1.wait()
        return total_grad_tensor, grad_weight, None


class TensorParallelRowLinear(nn.Module):
    def __init__(self, weight_shard, group):
        super().__init__()
        self.group = group
        self.weight = nn.Parameter(weight_shard)  # [h_out, h_in / n]

    def forward(self, x):
        return _RowLinearAsyncCommunication.apply(x, self.weight, self.group)
