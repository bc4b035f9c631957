# right: the mark is set on the weight
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu
from megatron.core.tensor_parallel import ColumnParallelLinear


class LatentQuery(torch.nn.Module):
    def __init__(self, config, rank, size, head):
        super().__init__()
        self.head = head
        self.down = torch.nn.Linear(config.hidden_size, rank, bias=False)
        self.down_norm = torch.nn.RMSNorm(rank)
        self.up = ColumnParallelLinear(rank, size, config=config, init_method=config.init_method, bias=False)
        self.head_norm = torch.nn.RMSNorm(head)
        self.head_norm.weight.sum_over_tp = True

    def forward(self, x):
        q, _ = self.up(self.down_norm(self.down(x)))
        return self.head_norm(q.view(*q.shape[:-1], -1, self.head))


def finish(model):
    for p in model.parameters():
        if getattr(p, "sum_over_tp", False):
            dist.all_reduce(p.grad, group=mpu.get_tensor_model_parallel_group())


def step(model, optimizer):
    finish(model)
    optimizer.step()
