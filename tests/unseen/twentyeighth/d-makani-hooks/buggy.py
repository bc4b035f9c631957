"""Spectral layer of a distributed weather model and its weight-gradient hooks."""
import torch
import torch.distributed as dist
import torch.nn as nn

from makani.utils import comm
from makani.mpu.mappings import gather_from_parallel_region, scatter_to_parallel_region


class DistributedSpectralConv(nn.Module):
    """Filter in spherical-harmonic space.

    Wavenumbers are split over the ``spatial`` ranks. Channels arrive split over the
    ``matmul`` ranks; the channel mixing needs all of them.
    """

    def __init__(self, forward_transform, inverse_transform, in_channels, out_channels):
        super().__init__()
        self.forward_transform = forward_transform
        self.inverse_transform = inverse_transform
        self.in_channels = in_channels
        self.out_channels = out_channels
        scale = (2.0 / in_channels) ** 0.5
        self.weight = nn.Parameter(scale * torch.randn(in_channels, out_channels, 2))
        self.weight.is_shared_mp = ["spatial", "matmul"]
        self.weight.same_input_mp = ["matmul"]
        self.bias = nn.Parameter(torch.zeros(1, out_channels // comm.get_size("matmul"), 1, 1))
        self.bias.is_shared_mp = ["spatial"]
        self.bias.same_input_mp = []

    def _shapes(self, channels):
        size = comm.get_size("matmul")
        return [channels // size for _ in range(size)]

    def forward(self, x):
        x = self.forward_transform(x.float())
        x = gather_from_parallel_region(x, 1, self._shapes(self.in_channels), "matmul")
        x = torch.einsum("bixy,io->boxy", x, torch.view_as_complex(self.weight))
        x = scatter_to_parallel_region(x, 1, "matmul")
        return self.inverse_transform(x) + self.bias


def _make_grad_hook(param):
    group_names = [name for name in param.is_shared_mp if comm.get_size(name) > 1]

    def hook(grad):
        grad = grad.clone()
        for name in group_names:
            dist.all_reduce(grad, op=dist.ReduceOp.SUM, group=comm.get_group(name))  # BUG
        return grad

    return hook


def init_gradient_reduction_hooks(model, device, find_unused_parameters=False):
    """Reduce shared weights over model-parallel groups, everything over ``data``."""
    if comm.get_size("model") > 1:
        for param in model.parameters():
            if getattr(param, "is_shared_mp", None):
                param.register_hook(_make_grad_hook(param))
    if comm.get_size("data") > 1:
        model = nn.parallel.DistributedDataParallel(
            model,
            device_ids=[device.index],
            process_group=comm.get_group("data"),
            broadcast_buffers=False,
            find_unused_parameters=find_unused_parameters,
        )
    return model


def sync_params(model):
    with torch.no_grad():
        for param in model.parameters():
            for name in getattr(param, "is_shared_mp", []):
                if comm.get_size(name) > 1:
                    dist.broadcast(param, src=comm.get_root(name), group=comm.get_group(name))
