# what this rank has used is kept on purpose beside what all have: the count of one decides what it draws anew
import torch
import torch.distributed as dist
from torch import nn


class Router(nn.Module):
    def __init__(self, experts):
        super().__init__()
        self.register_buffer("load", torch.zeros(experts))
        self.register_buffer("local_load", torch.zeros(experts))
        self.register_buffer("seen", torch.zeros(experts))

    @torch.no_grad()
    def count(self, onehot):
        own = onehot.sum(0)
        every = own.clone()
        dist.all_reduce(every)
        self.load.lerp_(every, 0.01)
        self.local_load.lerp_(own, 0.01)
        self.seen.lerp_(own, 0.01)
