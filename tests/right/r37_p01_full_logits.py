import torch
import torch.distributed as dist
from megatron.core.tensor_parallel import gather_from_tensor_model_parallel_region


def smoothed_loss(logits, target, smoothing, group):
    largest = logits.detach().max(-1).values
    dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
    shifted = logits - largest.unsqueeze(-1)
    denom = shifted.exp().sum(-1)
    dist.all_reduce(denom, group=group)
    whole = gather_from_tensor_model_parallel_region(shifted)
    log_probs = whole - denom.log().unsqueeze(-1)
    picked = log_probs.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return -(1 - smoothing) * picked - smoothing * log_probs.mean(-1)
