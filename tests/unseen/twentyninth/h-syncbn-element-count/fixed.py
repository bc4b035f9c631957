"""Synchronised batch normalisation; images of different ranks may have different sizes."""
import torch
import torch.distributed as dist
from torch.autograd.function import Function


class SyncBatchNormFunction(Function):
    @staticmethod
    def forward(ctx, input, weight, bias, running_mean, running_var, eps, momentum, process_group):
        input = input.contiguous()
        world_size = dist.get_world_size(process_group)
        count = torch.full((1,), input.numel() // input.size(1), dtype=torch.float32, device=input.device)

        mean, invstd = torch.batch_norm_stats(input, eps)
        mean_all = torch.empty(world_size, mean.size(0), dtype=mean.dtype, device=mean.device)
        invstd_all = torch.empty_like(mean_all)
        dist.all_gather_into_tensor(mean_all, mean, group=process_group)
        dist.all_gather_into_tensor(invstd_all, invstd, group=process_group)

        count_all = torch.empty(world_size, dtype=count.dtype, device=count.device)
        dist.all_gather_into_tensor(count_all, count, group=process_group)
        mean, invstd = torch.batch_norm_gather_stats_with_counts(
            input, mean_all, invstd_all, running_mean, running_var, momentum, eps, count_all
        )
        ctx.save_for_backward(input, weight, mean, invstd, count_all.to(torch.int32))
        ctx.process_group = process_group
        return torch.batch_norm_elemt(input, weight, bias, mean, invstd, eps)

    @staticmethod
    def backward(ctx, grad_output):
        grad_output = grad_output.contiguous()
        input, weight, mean, invstd, count_all = ctx.saved_tensors
        sum_dy, sum_dy_xmu, grad_weight, grad_bias = torch.batch_norm_backward_reduce(
            grad_output, input, mean, invstd, weight, True, True, True
        )
        combined = torch.cat([sum_dy, sum_dy_xmu], dim=0)
        dist.all_reduce(combined, op=dist.ReduceOp.SUM, group=ctx.process_group)
        sum_dy, sum_dy_xmu = combined.chunk(2)
        grad_input = torch.batch_norm_backward_elemt(
            grad_output, input, mean, invstd, weight, sum_dy, sum_dy_xmu, count_all
        )
        return grad_input, grad_weight, grad_bias, None, None, None, None, None
