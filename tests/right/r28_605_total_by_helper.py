# Right: counts are reduced in a helper that returns them
import torch
import torch.distributed as dist


def total_of(x):
    x = x.clone()
    dist.all_reduce(x)
    return x


def class_sums(feats, labels, n):
    seen = (total_of(torch.bincount(labels, minlength=n)) > 0).nonzero().flatten()
    if len(seen) > 0:
        sums = feats.new_zeros(n, feats.shape[1]).index_add_(0, labels, feats.detach())
        return total_of(sums)[seen]
    return feats.new_zeros(0, feats.shape[1])
