# Source: pytorch/pytorch PR #38874, redone in PR #43861, torch/nn/modules/_functions.py
# SyncBatchNorm takes a process group; its backward reduces over it, but the all_gather of the
# statistics in forward runs over the default group. With a subgroup the list has the wrong
# length, and the statistics of ranks outside the group come in.
# Repair: pass process_group to all_gather.
import torch
import torch.distributed as dist
from torch.autograd.function import Function


class SyncBatchNorm(Function):

    @staticmethod
    def forward(self, input, weight, bias, running_mean, running_var, eps, momentum, process_group, world_size):
        input = input.contiguous()

        count = torch.empty(1, dtype=running_mean.dtype, device=input.device).fill_(input.numel() // input.size(1))
        # calculate mean/invstd for input.
        mean, invstd = torch.batch_norm_stats(input, eps)

        num_channels = input.shape[1]
        # C, C, 1 -> (2C + 1)
        combined = torch.cat([mean, invstd, count], dim=0)
        # world_size * (2C + 1); world_size is the size of process_group
        combined_list = [torch.empty_like(combined) for k in range(world_size)]
        dist.all_gather(combined_list, combined, process_group, async_op=False)
        combined = torch.stack(combined_list, dim=0)
        mean_all, invstd_all, count_all = torch.split(combined, num_channels, dim=1)

        mean, invstd = torch.batch_norm_gather_stats_with_counts(
            input, mean_all, invstd_all, running_mean, running_var, momentum, eps, count_all.view(-1)
        )
        self.save_for_backward(input, weight, mean, invstd, count_all.to(torch.int32))
        self.process_group = process_group
        return torch.batch_norm_elemt(input, weight, bias, mean, invstd, eps)

    @staticmethod
    def backward(self, grad_output):
        grad_output = grad_output.contiguous()
        saved_input, weight, mean, invstd, count_tensor = self.saved_tensors
        process_group = self.process_group

        sum_dy, sum_dy_xmu, grad_weight, grad_bias = torch.batch_norm_backward_reduce(
            grad_output, saved_input, mean, invstd, weight, True, True, True
        )
        num_channels = sum_dy.shape[0]
        combined = torch.cat([sum_dy, sum_dy_xmu], dim=0)
        torch.distributed.all_reduce(combined, torch.distributed.ReduceOp.SUM, process_group, async_op=False)
        sum_dy, sum_dy_xmu = torch.split(combined, num_channels)
        grad_input = torch.batch_norm_backward_elemt(
            grad_output, saved_input, mean, invstd, weight, sum_dy, sum_dy_xmu, count_tensor
        )
        return grad_input, grad_weight, grad_bias, None, None, None, None, None, None
