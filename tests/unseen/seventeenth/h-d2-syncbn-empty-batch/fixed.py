# Source: facebookresearch/detectron2 commit 7c69c051, detectron2/layers/batch_norm.py
# A rank without instances feeds zeros that do not depend on its input into the autograd
# all-reduce. No gradient leads through it there, so its backward (an all_reduce) is not run on
# this rank, and the other ranks wait for ever.
# Repair: make the zeros depend on the input (vec + input.sum()).
import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.function import Function

from detectron2.utils import comm


class AllReduce(Function):
    @staticmethod
    def forward(ctx, input):
        input_list = [torch.zeros_like(input) for k in range(dist.get_world_size())]
        dist.all_gather(input_list, input, async_op=False)
        inputs = torch.stack(input_list, dim=0)
        return torch.sum(inputs, dim=0)

    @staticmethod
    def backward(ctx, grad_output):
        dist.all_reduce(grad_output, async_op=False)
        return grad_output


class NaiveSyncBatchNorm(nn.BatchNorm2d):
    """Statistics weighted by N; in the mask head N is the number of instances and may be 0."""

    def forward(self, input):
        if comm.get_world_size() == 1 or not self.training:
            return super().forward(input)

        B, C = input.shape[0], input.shape[1]

        mean = torch.mean(input, dim=[0, 2, 3])
        meansqr = torch.mean(input * input, dim=[0, 2, 3])

        if B == 0:
            vec = torch.zeros([2 * C + 1], device=mean.device, dtype=mean.dtype)
            vec = vec + input.sum()
        else:
            vec = torch.cat(
                [mean, meansqr, torch.ones([1], device=mean.device, dtype=mean.dtype)], dim=0
            )
        vec = AllReduce.apply(vec * B)

        total_batch = vec[-1].detach()
        momentum = total_batch.clamp(max=1) * self.momentum  # no update if total_batch is 0
        total_batch = torch.max(total_batch, torch.ones_like(total_batch))  # avoid div-by-zero
        mean, meansqr, _ = torch.split(vec / total_batch, C)

        var = meansqr - mean * mean
        invstd = torch.rsqrt(var + self.eps)
        scale = self.weight * invstd
        bias = self.bias - mean * scale
        scale = scale.reshape(1, -1, 1, 1)
        bias = bias.reshape(1, -1, 1, 1)

        self.running_mean += momentum * (mean.detach() - self.running_mean)
        self.running_var += momentum * (var.detach() - self.running_var)
        return input * scale + bias
