# right: input norm in front of a column layer with no mark; sum over tp on a norm of scattered tokens by other mark
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu
from megatron.core.tensor_parallel import ColumnParallelLinear


class GroupNormHeads(torch.nn.Module):
    """Retention: group norm over the heads of this rank."""

    def __init__(self, config, head):
        super().__init__()
        self.head = head
        self.pre_norm = torch.nn.RMSNorm(config.hidden_size)
        self.v = ColumnParallelLinear(config.hidden_size, config.hidden_size, config=config, init_method=config.init_method, bias=False)
        self.out_norm = torch.nn.RMSNorm(head)
        setattr(self.out_norm.weight, "reduce_over_tensor_ranks", True)

    def forward(self, x):
        v, _ = self.v(self.pre_norm(x))
        return self.out_norm(v.unflatten(-1, (-1, self.head)))


def finish(model):
    for p in model.parameters():
        if getattr(p, "reduce_over_tensor_ranks", False):
            dist.all_reduce(p.grad, group=mpu.get_tensor_model_parallel_group())
