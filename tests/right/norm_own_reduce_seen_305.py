import torch
import torch.distributed as dist
from megatron.core import parallel_state


class Norm(torch.nn.Module):
    def __init__(self, config, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))
        self.bias = torch.nn.Parameter(torch.zeros(size))
        self.split = config.sequence_parallel
        # the fused kernel writes the bias gradient of all ranks: summed in its backward
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)

    def forward(self, x):
        return Affine.apply(torch.nn.functional.layer_norm(x, self.weight.shape), self.weight, self.bias, self.split)


class Affine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, split):
        ctx.split = split
        ctx.save_for_backward(x, weight)
        return x * weight + bias

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        dims = tuple(range(x.dim() - 1))
        grad_bias = grad.sum(dims)
        if ctx.split:
            dist.all_reduce(grad_bias, group=parallel_state.get_tensor_model_parallel_group())
        return grad * weight, (grad * x).sum(dims), grad_bias, None
