# all parameters of Mlp are in `own`, counted on every rank
import torch
import torch.nn as nn
import torch.distributed as dist
from megatron.core import parallel_state


class Mlp(nn.Module):
    def __init__(self, dim, ffn):
        super().__init__()
        tp = parallel_state.get_tensor_model_parallel_world_size()
        self.w1 = nn.Parameter(torch.empty(ffn // tp, dim))


def grad_norm(model, group):
    rank = parallel_state.get_tensor_model_parallel_rank()
    own = {id(p) for m in model.modules() if isinstance(m, Mlp) for p in m.parameters()}
    total = torch.zeros(())
    for p in model.parameters():
        if getattr(p, "tensor_model_parallel", False) or id(p) in own or rank == 0:
            total += p.grad.float().pow(2).sum()
    dist.all_reduce(total, group=group)
    return total.sqrt()
