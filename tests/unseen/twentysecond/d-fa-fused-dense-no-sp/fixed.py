"""Fused dense layer, column parallel, with or without sequence parallelism."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


class FusedDenseFunc(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, process_group, sequence_parallel):
        ctx.process_group, ctx.sequence_parallel = process_group, sequence_parallel
        if sequence_parallel:
            total_x = torch.empty(x.size(0) * process_group.size(), *x.shape[1:], dtype=x.dtype, device=x.device)
            dist.all_gather_into_tensor(total_x, x.contiguous(), group=process_group)
        else:
            total_x = x
        ctx.save_for_backward(total_x, weight)
        return F.linear(total_x, weight)

    @staticmethod
    def backward(ctx, grad_output):
        total_x, weight = ctx.saved_tensors
        grad_input = grad_output @ weight
        if ctx.sequence_parallel:
            total = grad_input.contiguous()
            grad_input = torch.empty_like(total[: total.size(0) // ctx.process_group.size()])
            dist.reduce_scatter_tensor(grad_input, total, group=ctx.process_group)
        else:
            grad_input = grad_input.contiguous()
            dist.all_reduce(grad_input, group=ctx.process_group)
        grad_weight = grad_output.flatten(0, -2).t() @ total_x.flatten(0, -2)
        return grad_input, grad_weight, None, None


class ColumnParallelLinear(torch.nn.Module):
    def __init__(self, weight_shard, process_group, sequence_parallel):
        super().__init__()
        self.weight = torch.nn.Parameter(weight_shard)  # [out/tp, in]
        self.weight.tensor_model_parallel = True
        self.process_group, self.sequence_parallel = process_group, sequence_parallel

    def forward(self, x):
        # x: the same on every rank, or a slice of dim 0 with sequence parallelism
        return FusedDenseFunc.apply(x, self.weight, self.process_group, self.sequence_parallel)
