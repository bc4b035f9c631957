"""A linear that saves the shard of its input and gathers it once more in the backward pass, for the gradient of the weight."""

import torch
from megatron.core.parallel_state import get_tensor_model_parallel_group, get_tensor_model_parallel_world_size


def _gather_first_dim(x, group):
    shape = list(x.shape)
    shape[0] *= get_tensor_model_parallel_world_size()
    out = torch.empty(shape, dtype=x.dtype, device=x.device)
    handle = torch.distributed.all_gather_into_tensor(out, x.contiguous(), group=group, async_op=True)
    return out, handle


class SequenceParallelLinear(torch.autograd.Function):
    """y = gather(x) @ w.T with half the memory: the gathered input is not kept."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        total, handle = _gather_first_dim(x, get_tensor_model_parallel_group())
        handle.wait()
        return torch.matmul(total, weight.t())

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        group = get_tensor_model_parallel_group()
        # While the input is gathered again, the gradient of the input is computed.
        total, gathering = _gather_first_dim(x, group)
        grad_total = grad_output.matmul(weight)
        gathering.wait()

        grad_x = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        scattering = torch.distributed.reduce_scatter_tensor(grad_x, grad_total.contiguous(), group=group, async_op=True)
        rows = grad_output.reshape(-1, grad_output.shape[-1])
        grad_weight = rows.t().matmul(total.view(-1, total.shape[-1]))
        scattering.wait()
        return grad_x, grad_weight


class ColumnLinear(torch.nn.Module):
    def __init__(self, hidden_size, out_per_partition):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(out_per_partition, hidden_size))
        setattr(self.weight, "tensor_model_parallel", True)
        setattr(self.weight, "partition_dim", 0)
        setattr(self.weight, "partition_stride", 1)

    def forward(self, x):
        # [s/tp, b, h] -> [s, b, out/tp]
        return SequenceParallelLinear.apply(x, self.weight)
