# NVIDIA/makani, pull request 103 - https://github.com/NVIDIA/makani/pull/103 (read, also mpu/mappings.py)
# Gradients of shared parameters are summed over every group in is_shared_mp. That is right where ranks hold
# parts of the input (spatial), but where they hold the same input (matmul) it counts the gradient N times.
"""Gradient reduction of parameters shared between model-parallel ranks (weather model)."""
import torch
import torch.distributed as dist
from makani.utils import comm


class ChannelBias(torch.nn.Module):
    """Added to a field whose latitudes/longitudes are sharded over "spatial".

    The field is the same on all ranks of "matmul".
    """

    def __init__(self, channels):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.bias.is_shared_mp = ["spatial", "matmul"]

    def forward(self, x):
        return x + self.bias


def reduce_gradients(model):
    for param in model.parameters():
        if param.grad is None:
            continue
        dist.all_reduce(param.grad, op=dist.ReduceOp.AVG, group=comm.get_group("data"))
        for name in param.is_shared_mp:
            dist.all_reduce(param.grad, op=dist.ReduceOp.SUM, group=comm.get_group(name))  # BUG: identical copies on "matmul"


def train_step(model, optimizer, loss_fn, inp, tar):
    optimizer.zero_grad()
    # area-weighted sum over this rank's part of the globe
    loss = loss_fn(model(inp), tar)
    loss.backward()
    reduce_gradients(model)
    optimizer.step()
