import torch
import torch.nn.functional as F
from torch.distributed.tensor import DTensor


@torch.no_grad()
def similarity(model, x):
    # fsdp: the weight of the head is gathered for this
    w = model.head.weight.full_tensor()
    return F.linear(x, w)


class Merge(torch.nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, x):
        # every rank has the same x; fsdp is not used here
        w = self.weight.full_tensor()
        return F.linear(x, w)


def head_of(weight, hidden):
    # not under FSDP: tp alone, whose ranks have the same hidden
    return F.linear(hidden, weight.full_tensor())
