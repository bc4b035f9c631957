# __dict__.update sets the mark on the parameter
import torch
import torch.nn as nn
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel import set_tensor_model_parallel_attributes


class Mlp(nn.Module):
    def __init__(self, dim, ffn):
        super().__init__()
        tp = parallel_state.get_tensor_model_parallel_world_size()
        self.w1 = nn.Parameter(torch.empty(ffn // tp, dim))
        self.w1.__dict__.update(tensor_model_parallel=True, partition_dim=0)


def grad_norm(model, group):
    rank = parallel_state.get_tensor_model_parallel_rank()
    total = torch.zeros(())
    for p in model.parameters():
        if getattr(p, "tensor_model_parallel", False) or rank == 0:
            total += p.grad.float().pow(2).sum()
    dist.all_reduce(total, group=group)
    return total.sqrt()
