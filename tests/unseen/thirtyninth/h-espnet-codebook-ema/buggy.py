"""Euclidean codebook of a neural codec, updated by exponential moving average."""
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
        embed = torch.zeros(codebook_size, dim)
        nn.init.kaiming_uniform_(embed)
        self.register_buffer("cluster_size", torch.zeros(codebook_size))
        self.register_buffer("embed", embed)
        self.register_buffer("embed_avg", embed.clone())

    def quantize(self, x):
        dist_sq = x.pow(2).sum(1, keepdim=True) - 2 * x @ self.embed.t() + self.embed.pow(2).sum(1)
        return dist_sq.argmin(dim=-1)

    def forward(self, x):
        shape = x.shape
        flat = x.reshape(-1, shape[-1])
        ind = self.quantize(flat)
        onehot = F.one_hot(ind, self.codebook_size).type(x.dtype)
        quantized = F.embedding(ind, self.embed).view(shape)
        if self.training:
            with torch.no_grad():
                counts = onehot.sum(0)
                embed_sum = onehot.t() @ flat
                ema_inplace(self.cluster_size, counts, self.decay)  # BUG
                ema_inplace(self.embed_avg, embed_sum, self.decay)  # BUG
                size = laplace_smoothing(self.cluster_size, self.codebook_size, self.epsilon)
                size = size * self.cluster_size.sum()
                self.embed.data.copy_(self.embed_avg / size.unsqueeze(1))
        return x + (quantized - x).detach(), ind.view(shape[:-1])
