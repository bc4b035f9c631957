import torch
import torch.distributed as dist
from megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region


def loss_of_hidden(hidden, weight, target, start, group):
    logits = copy_to_tensor_model_parallel_region(hidden) @ weight.t()
    largest = logits.detach().max(-1).values
    dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
    shifted = logits - largest.unsqueeze(-1)
    denom = shifted.exp().sum(-1)
    dist.all_reduce(denom, group=group)
    mine = (target >= start) & (target < start + weight.shape[0])
    local = torch.where(mine, target - start, 0)
    picked = shifted.gather(-1, local.unsqueeze(-1)).squeeze(-1) * mine
    dist.all_reduce(picked, group=group)
    size = hidden.pow(2).mean(-1)  # of the hidden width, which no rank has a part of
    return denom.log() - picked + 1e-4 * size
