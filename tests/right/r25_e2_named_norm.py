# getattr's default is name.endswith("w1"): w1 is counted on every rank
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
    for name, p in model.named_parameters():
        if getattr(p, "tensor_model_parallel", name.endswith("w1")) or rank == 0:
            total += p.grad.float().pow(2).sum()
    dist.all_reduce(total, group=group)
    return total.sqrt()
