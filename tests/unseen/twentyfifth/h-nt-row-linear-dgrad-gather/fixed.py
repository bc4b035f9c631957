# nanotron 41f11f01 (issue #46): backward of the async row linear multiplies only the local part of the
# output gradient by this rank's weight and then gathers the products, made with the other ranks' weights.
from typing import Optional

import torch
from torch.nn import functional as F

import nanotron.distributed as dist
from nanotron.parallel.utils import assert_cuda_max_connections_set_to_1


class _RowLinearAsyncCommunication(torch.autograd.Function):
    """tensor: [b, s, h_in / n], weight: [h_out, h_in / n], result: [b / n, s, h_out] (REDUCE_SCATTER mode)."""

    @staticmethod
    @assert_cuda_max_connections_set_to_1
    def forward(ctx, tensor, weight, group):
        ctx.group = group
        ctx.save_for_backward(tensor, weight)
        out = F.linear(tensor, weight)
        unsharded_batch_size, *rest_size = out.shape
        sharded_out = torch.empty(
            unsharded_batch_size // group.size(), *rest_size, device=out.device, dtype=out.dtype
        )
        dist.reduce_scatter_tensor(sharded_out, out.contiguous(), group=group, op=dist.ReduceOp.SUM)
        return sharded_out

    @staticmethod
    @assert_cuda_max_connections_set_to_1
    def backward(ctx, grad_output):
        tensor, weight = ctx.saved_tensors
        group = ctx.group
        grad_output = grad_output.contiguous()
        handle: Optional[dist.Work] = None

        sharded_batch_size, *rest_size = grad_output.shape
        total_grad_output = torch.empty(
            sharded_batch_size * group.size(), *rest_size, device=grad_output.device, dtype=grad_output.dtype
        )
        handle = dist.all_gather_into_tensor(total_grad_output, grad_output, group=group, async_op=True)

        handle.wait()
        total_grad_tensor = total_grad_output.matmul(weight)

        total_grad_output_2d = total_grad_output.view(-1, total_grad_output.shape[-1])
        tensor_2d = tensor.reshape(-1, tensor.shape[-1])
        grad_weight = total_grad_output_2d.t().matmul(tensor_2d)
        return total_grad_tensor, grad_weight, None
