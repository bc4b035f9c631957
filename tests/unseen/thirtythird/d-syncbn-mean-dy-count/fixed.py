"""Backward of synchronised batch norm with different batch sizes on the ranks.

Source: https://github.com/pytorch/pytorch/pull/36382
Wrong: the means of dy and dy * xmu are averaged over ranks with equal weight, while forward used
the mean over all rows; with uneven batches the input gradient is wrong.
Repair: sum over the ranks and divide by the number of rows of all ranks.
"""
import torch
import torch.distributed as dist
from torch.autograd.function import Function


class SyncBatchNorm(Function):
    @staticmethod
    def forward(ctx, input, weight, bias, eps, process_group, world_size):
        # input: [rows, channels], the number of rows may differ between ranks
        count = torch.full((1,), input.size(0), dtype=input.dtype, device=input.device)
        combined = torch.cat([input.sum(0), (input * input).sum(0), count])
        combined_list = [torch.empty_like(combined) for _ in range(world_size)]
        dist.all_gather(combined_list, combined, group=process_group)
        everything = torch.stack(combined_list)
        count_all = everything[:, -1]
        mean, sq = (everything[:, :-1].sum(0) / count_all.sum()).chunk(2)
        invstd = torch.rsqrt(sq - mean * mean + eps)
        ctx.save_for_backward(input, weight, mean, invstd, count_all)
        ctx.process_group = process_group
        ctx.world_size = world_size
        return (input - mean) * invstd * weight + bias

    @staticmethod
    def backward(ctx, grad_output):
        input, weight, mean, invstd, count_all = ctx.saved_tensors
        xmu = input - mean
        sum_dy, sum_dy_xmu = grad_output.sum(0), (grad_output * xmu).sum(0)
        grad_weight, grad_bias = sum_dy_xmu * invstd, sum_dy  # local; DDP reduces them

        combined = torch.cat([sum_dy, sum_dy_xmu])
        dist.all_reduce(combined, group=ctx.process_group)
        mean_dy, mean_dy_xmu = (combined / count_all.sum()).chunk(2)

        grad_input = (grad_output - mean_dy - xmu * invstd * invstd * mean_dy_xmu) * invstd * weight
        return grad_input, grad_weight, grad_bias, None, None, None
