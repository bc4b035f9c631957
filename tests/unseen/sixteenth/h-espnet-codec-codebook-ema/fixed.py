# espnet/espnet pull request 6284
"""Euclidean codebook of a neural codec, updated by exponential moving averages."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


def is_distributed():
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def ema_inplace(moving_avg, new, decay):
    moving_avg.data.mul_(decay).add_(new, alpha=(1 - decay))


def laplace_smoothing(x, n_categories, epsilon=1e-5):
    return (x + epsilon) / (x.sum() + n_categories * epsilon)


class EuclideanCodebook(nn.Module):
    def __init__(self, dim, codebook_size, decay=0.99, epsilon=1e-5):
        super().__init__()
        self.decay, self.epsilon, self.codebook_size = decay, epsilon, codebook_size
        generator = torch.Generator().manual_seed(0)
        embed = torch.randn(codebook_size, dim, generator=generator)
        self.register_buffer("embed", embed)
        self.register_buffer("cluster_size", torch.ones(codebook_size))
        self.register_buffer("embed_avg", embed.clone())

    def quantize(self, x):
        dist_ = x.pow(2).sum(1, keepdim=True) - 2 * x @ self.embed.t() + self.embed.pow(2).sum(1)
        return dist_.argmin(dim=-1)

    @torch.no_grad()
    def update(self, x, embed_ind):
        embed_onehot = F.one_hot(embed_ind, self.codebook_size).type(x.dtype)
        cluster_size = embed_onehot.sum(0)
        embed_sum = embed_onehot.t() @ x
        stats = torch.cat([cluster_size.unsqueeze(1), embed_sum], dim=1)
        if is_distributed():
            dist.all_reduce(stats, op=dist.ReduceOp.SUM)
        cluster_size, embed_sum = stats[:, 0], stats[:, 1:]
        ema_inplace(self.cluster_size, cluster_size, self.decay)
        ema_inplace(self.embed_avg, embed_sum, self.decay)
        total = self.cluster_size.sum()
        smoothed = laplace_smoothing(self.cluster_size, self.codebook_size, self.epsilon) * total
        self.embed.data.copy_(self.embed_avg / smoothed.unsqueeze(1))

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        embed_ind = self.quantize(x)
        quantized = F.embedding(embed_ind, self.embed).view(shape)
        if self.training:
            self.update(x, embed_ind)
        return quantized, embed_ind.view(shape[:-1])
