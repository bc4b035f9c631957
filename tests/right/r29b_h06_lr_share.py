# right: first loop divides all marked grads through a list comprehension and _foreach
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu
from megatron.core.tensor_parallel import ColumnParallelLinear


class LowRank(torch.nn.Module):
    def __init__(self, config, rank, size):
        super().__init__()
        self.down = torch.nn.Linear(config.hidden_size, rank, bias=False)
        self.norm = torch.nn.RMSNorm(rank)
        self.up = ColumnParallelLinear(rank, size, config=config, init_method=config.init_method, bias=False)
        for p in (*self.down.parameters(), *self.norm.parameters()):
            p.sum_over_tp = True

    def forward(self, x):
        return self.up(self.norm(self.down(x)))[0]


def finish(model):
    for p in model.parameters():
        if getattr(p, "sum_over_tp", False):
            dist.all_reduce(p.grad, group=mpu.get_tensor_model_parallel_group())


def step(model, optimizer):
    marked = [p.grad for p in model.parameters() if hasattr(p, "sum_over_tp")]
    torch._foreach_mul_(marked, 1.0 / mpu.get_tensor_model_parallel_world_size())
    finish(model)
    optimizer.step()
