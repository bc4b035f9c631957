import torch
from torch.distributed.nn.functional import all_reduce


def with_between(var, mean, own_mean, group, count):
    return var + all_reduce((own_mean - mean) ** 2, group=group) / count


def normalized(x, group, count, eps):
    own = x.mean()
    moments = torch.stack([own, x.var(unbiased=False)])
    mean, var = all_reduce(moments, group=group) / count
    var = with_between(var, mean, own, group, count)
    return (x - mean) * torch.rsqrt(var + eps)
