# espnet/espnet, pull request 6284 - https://github.com/espnet/espnet/pull/6284 (read, also core_vq.py)
# The EMA statistics of the codebook are computed from the local batch on each process. Codebooks diverge
# between processes until a broadcast overwrites them with the state of rank 0.
"""Euclidean codebook of a neural audio codec, updated by exponential moving averages under DDP."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


def ema_inplace(moving_avg, new, decay):
    moving_avg.data.mul_(decay).add_(new, alpha=1 - decay)


def laplace_smoothing(x, n_categories, epsilon=1e-5):
    return (x + epsilon) / (x.sum() + n_categories * epsilon)


class EuclideanCodebook(nn.Module):
    def __init__(self, dim, codebook_size, decay=0.99, epsilon=1e-5):
        super().__init__()
        self.decay, self.epsilon, self.codebook_size = decay, epsilon, codebook_size
        embed = torch.empty(codebook_size, dim)
        nn.init.kaiming_uniform_(embed)
        self.register_buffer("cluster_size", torch.zeros(codebook_size))
        self.register_buffer("embed", embed)
        self.register_buffer("embed_avg", embed.clone())

    def quantize(self, x):
        return torch.cdist(x, self.embed).argmin(dim=-1)

    def forward(self, x):
        flat = x.reshape(-1, x.size(-1))
        embed_ind = self.quantize(flat)
        embed_onehot = F.one_hot(embed_ind, self.codebook_size).type(x.dtype)
        quantize = F.embedding(embed_ind, self.embed).view_as(x)
        if self.training:
            with torch.no_grad():
                counts = embed_onehot.sum(0)
                embed_sum = embed_onehot.t() @ flat
                dist.all_reduce(counts)
                dist.all_reduce(embed_sum)
                ema_inplace(self.cluster_size, counts, self.decay)
                ema_inplace(self.embed_avg, embed_sum, self.decay)
                smoothed = laplace_smoothing(self.cluster_size, self.codebook_size, self.epsilon)
                self.embed.data.copy_(self.embed_avg / (smoothed * self.cluster_size.sum()).unsqueeze(1))
        return quantize, embed_ind.view(x.shape[:-1])
