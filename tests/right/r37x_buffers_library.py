import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


def broadcast_tensors(tensors):
    for t in tensors:
        dist.broadcast(t.data, src=0)


def sync_buffer(buffers):
    for b in buffers:
        dist.all_reduce(b.data)
        b.data /= dist.get_world_size()


class Codebook(nn.Module):
    def __init__(self, size, dim, decay=0.99):
        super().__init__()
        self.decay = decay
        self.register_buffer("inited", torch.zeros(1))
        self.register_buffer("cluster_size", torch.zeros(size))
        self.register_buffer("embed", torch.randn(size, dim))

    def init_(self, x):
        if self.inited:
            return
        self.embed.data.copy_(x[: self.embed.shape[0]])
        self.inited.fill_(1)
        broadcast_tensors(self.buffers())

    def forward(self, x):
        self.init_(x)
        index = torch.cdist(x, self.embed).argmin(-1)
        onehot = F.one_hot(index, self.embed.shape[0]).type(x.dtype)
        if self.training:
            self.cluster_size.data.mul_(self.decay).add_(onehot.sum(0), alpha=1 - self.decay)
        return F.embedding(index, self.embed)
