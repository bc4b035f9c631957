"""Sharded transformer layer with sequence parallelism (shardformer)."""
import torch
import torch.nn as nn
import torch.distributed as dist
from colossalai.shardformer.layer import Linear1D_Col, Linear1D_Row


class LayerNorm(nn.Module):
    @staticmethod
    def from_native_module(module, process_group, sp_partial_derived=False):
        if sp_partial_derived:
            def hook(grad):
                dist.all_reduce(grad, group=process_group)
                return grad

            module.weight.register_hook(hook)
            module.bias.register_hook(hook)
        return module


class Block(nn.Module):
    def __init__(self, norm: nn.LayerNorm, up: Linear1D_Col, down: Linear1D_Row, tp_group):
        super().__init__()
        # the sequence is split over tp_group between the linears
        self.norm = LayerNorm.from_native_module(norm, tp_group)  # BUG: gradients cover the local sequence part
        self.up, self.down = up, down  # seq_parallel=True: gather before, reduce-scatter after

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))
