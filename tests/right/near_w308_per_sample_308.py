import torch
from torch.distributed.nn.functional import all_reduce


def noise_scaled(grads, group, count, eps):
    """Signal to noise per parameter: mean gradient over the noise within batches (that of a mini-batch, by definition)."""
    moments = torch.stack([grads.mean(0), grads.var(0, unbiased=True)])
    mean, noise = all_reduce(moments, group=group) / count
    return mean / (noise + eps).sqrt()
