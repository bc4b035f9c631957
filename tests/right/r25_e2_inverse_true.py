# getattr's default is True: unmarked is a part, counted on every rank
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
    total = torch.zeros(())
    for p in model.parameters():
        whole = not getattr(p, "tensor_model_parallel", True)
        if whole and rank != 0:
            continue
        total += p.grad.float().pow(2).sum()
    dist.all_reduce(total, group=group)
    return total.sqrt()
