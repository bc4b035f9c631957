import torch
import torch.distributed as dist
from torch import nn
from megatron.core import parallel_state
from megatron.core.tensor_parallel import RowParallelLinear
from megatron.core.tensor_parallel.mappings import gather_from_sequence_parallel_region, scatter_to_sequence_parallel_region
from megatron.core.transformer.module import MegatronModule


def plain(i, o):
    return nn.Linear(i, o, bias=False)


class LoRA(nn.Module):
    def __init__(self, base, config, rank):
        super().__init__()
        self.base = base
        base.weight.requires_grad = False
        self.sequence_parallel = config.sequence_parallel
        self.a = RowParallelLinear(config.ffn_hidden_size, rank, config=config, init_method=config.init_method, bias=False, input_is_parallel=True, skip_bias_add=False)
        self.norm = nn.LayerNorm(rank)
        if config.sequence_parallel:
            self.norm.weight.sequence_parallel = True
            self.norm.bias.sequence_parallel = True
        self.b = plain(rank, config.hidden_size)
        self.requires_grad_(False)

    def forward(self, x):
        y, bias = self.base(x)
        h, _ = self.a(x)
        h = self.norm(h)
        return y + self.b(h), bias
