# Right: the early return calls the reduction with zero before
import torch
import torch.distributed as dist
import torch.nn.functional as F


def reduce_mean(x):
    x = x.clone() / dist.get_world_size()
    dist.all_reduce(x)
    return x


def empty_loss(pred):
    reduce_mean(pred.new_tensor(0.0))
    return pred.sum() * 0


def loss(pred, labels, target):
    pos = (labels >= 0).nonzero().reshape(-1)
    if pos.numel() == 0:
        return empty_loss(pred)
    n = reduce_mean(pred.new_tensor(float(pos.numel()))).clamp(min=1)
    return F.l1_loss(pred[pos], target[pos], reduction="sum") / n
