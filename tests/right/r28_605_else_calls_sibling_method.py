# Right: the early return calls a method that reaches the same reductions
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


def reduce_mean(x):
    x = x.clone() / dist.get_world_size()
    dist.all_reduce(x)
    return x


class Head(nn.Module):
    def empty(self, pred):
        reduce_mean(pred.new_zeros(()))
        return pred.sum() * 0

    def loss(self, pred, labels, target):
        pos = (labels >= 0).nonzero().reshape(-1)
        if len(pos) > 0:
            n = reduce_mean(pred.new_tensor(float(len(pos)))).clamp(min=1)
            return F.l1_loss(pred[pos], target[pos], reduction="sum") / n
        else:
            return self.empty(pred)
