import torch
import torch.distributed as dist
import torch.nn as nn


class Lazy:
    """`a / b` gives a view of the child: the tensor below a name."""

    def __init__(self, t):
        self.t = t

    def __truediv__(self, name):
        return self.t[name]


def reduce(tree, group):
    dist.all_reduce(tree / "grads", group=group)
    return tree
