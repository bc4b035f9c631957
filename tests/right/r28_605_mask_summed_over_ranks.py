# Right: the mask of classes is all-reduced before
import torch
import torch.distributed as dist


def class_means(feats, labels, n):
    present = torch.bincount(labels, minlength=n)
    total = present.clone()
    dist.all_reduce(total)
    seen = (total > 0).nonzero().flatten()
    if len(seen) > 0:
        sums = feats.new_zeros(n, feats.shape[1]).index_add_(0, labels, feats.detach())
        dist.all_reduce(sums)
        return sums[seen] / total[seen, None]
    return feats.new_zeros(0, feats.shape[1])
