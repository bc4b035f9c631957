import torch
import torch.distributed as dist


def parts(logits, group):
    largest = logits.detach().max(-1).values
    dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
    shifted = logits - largest.unsqueeze(-1)
    denom = shifted.exp().sum(-1)
    dist.all_reduce(denom, group=group)
    return denom.log(), shifted.mean(-1)


def smooth(logits, picked, smoothing, group):
    log_denom, mean = parts(logits, group)
    dist.all_reduce(mean, op=dist.ReduceOp.AVG, group=group)
    return (1 - smoothing) * (log_denom - picked) + smoothing * (log_denom - mean)
