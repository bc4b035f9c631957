# w1 carries the mark tp_part which is_part asks for too
import torch
import torch.nn as nn
import torch.distributed as dist
from megatron.core import parallel_state


class Mlp(nn.Module):
    def __init__(self, dim, ffn):
        super().__init__()
        tp = parallel_state.get_tensor_model_parallel_world_size()
        self.w1 = nn.Parameter(torch.empty(ffn // tp, dim))
        self.w1.tp_part = True


def is_part(p):
    return getattr(p, "tensor_model_parallel", False) or getattr(p, "tp_part", False)


def grad_norm(model, group):
    rank = parallel_state.get_tensor_model_parallel_rank()
    total = torch.zeros(())
    for p in model.parameters():
        if is_part(p) or rank == 0:
            total += p.grad.float().pow(2).sum()
    dist.all_reduce(total, group=group)
    return total.sqrt()
