# ai2cm/ace, pull request 995 - https://github.com/ai2cm/ace/pull/995 (read)
# Each spatial rank holds a part of the globe and only its part of the parameter gradient. DDP runs over the
# data group alone, so spatial ranks apply different updates.
"""Spatially distributed training of a climate emulator."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class _AutogradAllReduce(torch.autograd.Function):
    """Sum over spatial ranks; the result is used identically on each of them."""

    @staticmethod
    def forward(ctx, tensor, group):
        out = tensor.clone()
        dist.all_reduce(out, group=group)
        return out

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


class ModelTorchDistributed:
    def __init__(self, device, data_group, spatial_group):
        self.device, self.data_group, self.spatial_group = device, data_group, spatial_group

    def spatial_reduce_sum(self, tensor):
        return _AutogradAllReduce.apply(tensor, self.spatial_group)

    def _reduce_spatial(self, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=self.spatial_group)
        return grad

    def wrap_module(self, module):
        for param in module.parameters():
            if param.requires_grad:
                param.register_hook(self._reduce_spatial)
        return DistributedDataParallel(
            module, device_ids=[self.device], process_group=self.data_group, broadcast_buffers=False
        )


def area_weighted_mse(distributed, prediction, target, weights):
    """weights: this rank's cell areas; they sum to one over the globe."""
    local = ((prediction - target) ** 2 * weights).sum(dim=(-2, -1)).mean()
    return distributed.spatial_reduce_sum(local)
