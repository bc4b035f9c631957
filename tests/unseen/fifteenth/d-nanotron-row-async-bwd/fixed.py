# Reduced from nanotron parallel/tensor_parallel/functional.py (huggingface/nanotron issue 46, PR 172, read).
# Row-parallel linear in reduce-scatter mode: the forward sums the partial outputs and scatters the
# batch, so the backward needs the whole output gradient times the weight shard of this rank.
# What happens: the input gradient is the same on all ranks and only 1/tp of its rows are right.
import torch
import torch.distributed as dist
import torch.nn.functional as F


class _RowLinearAsyncCommunication(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, weight, group):
        # tensor: [b, s, h_in / n], weight: [h_out, h_in / n]
        ctx.group = group
        ctx.save_for_backward(tensor, weight)
        out = F.linear(tensor, weight)
        sharded = torch.empty(
            out.shape[0] // group.size(), *out.shape[1:], dtype=out.dtype, device=out.device
        )
        dist.reduce_scatter_tensor(sharded, out.contiguous(), group=group)
        return sharded

    @staticmethod
    def backward(ctx, grad_output):
        tensor, weight = ctx.saved_tensors
        group = ctx.group
        grad_output = grad_output.contiguous()
        sharded_batch_size, *rest_size = grad_output.shape

        total_grad_output = torch.empty(
            sharded_batch_size * group.size(), *rest_size, dtype=grad_output.dtype, device=grad_output.device
        )
        handle = dist.all_gather_into_tensor(total_grad_output, grad_output, group=group, async_op=True)

        total_grad_tensor = torch.empty_like(tensor)
        start = sharded_batch_size * dist.get_rank(group)
        # this rank's own rows while the gather is in flight, the others after it
        total_grad_tensor[start : start + sharded_batch_size] = grad_output.matmul(weight)
        handle.wait()
        total_grad_tensor[:start] = total_grad_output[:start].matmul(weight)
        end = start + sharded_batch_size
        total_grad_tensor[end:] = total_grad_output[end:].matmul(weight)

        grad_weight = total_grad_output.flatten(0, -2).t().matmul(tensor.flatten(0, -2))
        return total_grad_tensor, grad_weight, None


def row_linear(tensor, weight, group):
    return _RowLinearAsyncCommunication.apply(tensor, weight, group)
