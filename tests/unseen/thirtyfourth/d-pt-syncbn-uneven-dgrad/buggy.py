# pytorch/pytorch, pull request 36382 - https://github.com/pytorch/pytorch/pull/36382 (read)
# The forward supports a different batch size on each process, but the backward averages per-process means of
# dy and dy * (x - mean) with equal weight: the input gradient is wrong when batch sizes differ.
"""Synchronised batch norm (training mode) whose processes may have different batch sizes."""
import torch
import torch.distributed as dist
from torch.autograd.function import Function

DIMS = (0, 2, 3)


def _c(stat):
    return stat[None, :, None, None]


class SyncBatchNorm(Function):
    @staticmethod
    def forward(ctx, input, weight, bias, eps, process_group):
        count = input.new_full((1,), input.numel() // input.size(1))
        combined = torch.cat([input.sum(DIMS), input.pow(2).sum(DIMS), count])
        dist.all_reduce(combined, group=process_group)
        total_sum, total_sq, total = combined.split([input.size(1), input.size(1), 1])
        mean = total_sum / total
        invstd = torch.rsqrt(total_sq / total - mean * mean + eps)
        ctx.save_for_backward(input, weight, mean, invstd, total)
        ctx.process_group = process_group
        return (input - _c(mean)) * _c(invstd * weight) + _c(bias)

    @staticmethod
    def backward(ctx, grad_output):
        input, weight, mean, invstd, total = ctx.saved_tensors
        xmu = input - _c(mean)
        # weight and bias are reduced by DDP like any other parameter
        grad_weight = (grad_output * xmu).sum(DIMS) * invstd
        grad_bias = grad_output.sum(DIMS)
        stats = torch.cat([grad_output.mean(DIMS), (grad_output * xmu).mean(DIMS)])
        dist.all_reduce(stats, group=ctx.process_group)
        stats = stats / dist.get_world_size(ctx.process_group)  # BUG: counts differ between processes
        mean_dy, mean_dy_xmu = stats.chunk(2)
        grad_input = (grad_output - _c(mean_dy) - xmu * _c(invstd * invstd * mean_dy_xmu)) * _c(invstd * weight)
        return grad_input, grad_weight, grad_bias, None, None
