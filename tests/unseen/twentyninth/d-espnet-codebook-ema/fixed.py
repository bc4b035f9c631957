"""Vector quantisation with exponential moving averages; DDP runs with broadcast_buffers=False."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


def ema_inplace(moving_avg, new, decay: float):
    moving_avg.mul_(decay).add_(new, alpha=1 - decay)


def laplace_smoothing(x, n_categories: int, epsilon: float = 1e-5):
    return (x + epsilon) / (x.sum() + n_categories * epsilon)


class EuclideanCodebook(nn.Module):
    def __init__(self, dim: int, codebook_size: int, decay: float = 0.99, epsilon: float = 1e-5):
        super().__init__()
        self.decay, self.epsilon, self.codebook_size = decay, epsilon, codebook_size
        embed = torch.randn(codebook_size, dim)
        self.register_buffer("embed", embed)
        self.register_buffer("embed_avg", embed.clone())
        self.register_buffer("cluster_size", torch.ones(codebook_size))

    @torch.no_grad()
    def update(self, x, embed_ind):
        embed_onehot = F.one_hot(embed_ind, self.codebook_size).type(x.dtype)
        cluster_size = embed_onehot.sum(0)
        embed_sum = embed_onehot.t() @ x
        dist.all_reduce(cluster_size, op=dist.ReduceOp.SUM)
        dist.all_reduce(embed_sum, op=dist.ReduceOp.SUM)
        ema_inplace(self.cluster_size, cluster_size, self.decay)
        ema_inplace(self.embed_avg, embed_sum, self.decay)
        cluster_size = laplace_smoothing(self.cluster_size, self.codebook_size, self.epsilon)
        cluster_size = cluster_size * self.cluster_size.sum()
        self.embed.copy_(self.embed_avg / cluster_size.unsqueeze(1))

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        embed_ind = torch.cdist(x, self.embed).argmin(dim=-1)
        quantize = F.embedding(embed_ind, self.embed)
        if self.training:
            self.update(x, embed_ind)
        quantize = x + (quantize - x).detach()
        return quantize.view(shape), embed_ind.view(shape[:-1])


def wrap(codec: nn.Module, local_rank: int):
    for buffer in codec.buffers():
        dist.broadcast(buffer, src=0)
    return DistributedDataParallel(codec, device_ids=[local_rank], broadcast_buffers=False)
