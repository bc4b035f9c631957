# right: a check function refuses the switch before anything is built
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu
from megatron.core.tensor_parallel import (
    ColumnParallelLinear,
    gather_from_sequence_parallel_region,
    scatter_to_sequence_parallel_region,
)


def check(config):
    if config.sequence_parallel:
        raise ValueError("LowRank splits the sequence itself")


class LowRank(torch.nn.Module):
    def __init__(self, config, rank, size):
        super().__init__()
        check(config)
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


def finish(model):
    for p in model.parameters():
        if getattr(p, "sum_over_tp", False):
            dist.all_reduce(p.grad, group=mpu.get_tensor_model_parallel_group())


def step(model, optimizer):
    finish(model)
    optimizer.step()
