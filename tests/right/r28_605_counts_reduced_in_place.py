# Right: the class counts are all-reduced in place before
import torch
import torch.distributed as dist


def class_sums(feats, labels, n):
    total = torch.bincount(labels, minlength=n)
    dist.all_reduce(total)
    seen = (total > 0).nonzero().flatten()
    if len(seen) > 0:
        sums = feats.new_zeros(n, feats.shape[1]).index_add_(0, labels, feats.detach())
        dist.all_reduce(sums)
        return sums[seen]
    return feats.new_zeros(0, feats.shape[1])
