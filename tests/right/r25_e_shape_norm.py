# getattr's default is p.dim() == 2: w1 is counted on every rank
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
        self.norm = nn.LayerNorm(dim)


def grad_norm(model, group):
    rank = dist.get_rank(group)
    total = torch.zeros(())
    for p in model.parameters():
        # weights of two dims are all cut, the vectors are whole
        if getattr(p, "tensor_model_parallel", p.dim() == 2) or rank == 0:
            total += p.grad.float().pow(2).sum()
    dist.all_reduce(total, group=group)
    return total.sqrt()
