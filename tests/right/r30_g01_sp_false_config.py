# right: the file makes the config with sequence_parallel=False
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu
from megatron.core.tensor_parallel import (
    ColumnParallelLinear,
    gather_from_sequence_parallel_region,
    scatter_to_sequence_parallel_region,
)


def make_config(hidden, layers, heads):
    from megatron.core.transformer import TransformerConfig

    return TransformerConfig(num_layers=layers, hidden_size=hidden, num_attention_heads=heads, sequence_parallel=False)


class LowRank(torch.nn.Module):
    def __init__(self, config, rank, size):
        super().__init__()
        self.down = torch.nn.Linear(config.hidden_size, rank, bias=False)
        self.norm = torch.nn.RMSNorm(rank)
        self.up = ColumnParallelLinear(rank, size, config=config, init_method=config.init_method, bias=False)
        for p in (*self.down.parameters(), *self.norm.parameters()):
            p.sum_over_tp = True

    def forward(self, x):
        x = scatter_to_sequence_parallel_region(x)
        h = self.norm(self.down(x))
        h = gather_from_sequence_parallel_region(h, tensor_parallel_output_grad=False)
        return self.up(h)[0]


def build(hidden, layers, heads, rank, size):
    return LowRank(make_config(hidden, layers, heads), rank, size)


def finish(model):
    for p in model.parameters():
        if getattr(p, "sum_over_tp", False):
            dist.all_reduce(p.grad, group=mpu.get_tensor_model_parallel_group())


def step(model, optimizer):
    finish(model)
    optimizer.step()
