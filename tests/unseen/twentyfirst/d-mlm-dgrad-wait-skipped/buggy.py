"""Column-parallel linear that overlaps the input-gradient reduction with the weight gradient."""
import torch
from megatron.core.parallel_state import get_tensor_model_parallel_group


class LinearWithAsyncCommunication(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, weight):
        ctx.save_for_backward(input, weight)
        ctx.wgrad_compute = weight.requires_grad
        return torch.matmul(input, weight.t())

    @staticmethod
    def backward(ctx, grad_output):
        input, weight = ctx.saved_tensors
        grad_input = grad_output.matmul(weight)
        handle = torch.distributed.all_reduce(
            grad_input, group=get_tensor_model_parallel_group(), async_op=True
        )
        if not ctx.wgrad_compute:
            return grad_input, None  # BUG: the all-reduce may still be running
        grad_output = grad_output.reshape(-1, grad_output.size(-1))
        grad_weight = grad_output.t().matmul(input.reshape(-1, input.size(-1)))
        handle.wait()
        return grad_input, grad_weight


class ColumnParallelLinear(torch.nn.Module):
    def __init__(self, weight_shard):
        super().__init__()
        self.weight = torch.nn.Parameter(weight_shard)
        self.weight.tensor_model_parallel = True

    def forward(self, x):
        # x is the same on every TP rank
        return LinearWithAsyncCommunication.apply(x, self.weight)
