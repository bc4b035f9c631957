"""Vector quantiser whose codebook is an exponential moving average (lucidrains style)."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


def noop(*args, **kwargs):
    pass


def is_distributed():
    return dist.is_initialized() and dist.get_world_size() > 1


class EuclideanCodebook(nn.Module):
    def __init__(self, dim, codebook_size, decay=0.8, eps=1e-5, use_ddp=False):
        super().__init__()
        self.decay, self.eps, self.codebook_size = decay, eps, codebook_size
        self.all_reduce_fn = dist.all_reduce if use_ddp else noop
        embed = torch.randn(codebook_size, dim)
        self.register_buffer("cluster_size", torch.zeros(codebook_size))
        self.register_buffer("embed", embed)
        self.register_buffer("embed_avg", embed.clone())

    @torch.no_grad()
    def _ema(self, flatten, onehot):
        cluster_size = onehot.sum(0)
        self.all_reduce_fn(cluster_size)
        self.cluster_size.data.lerp_(cluster_size, 1 - self.decay)
        embed_sum = onehot.t() @ flatten
        self.all_reduce_fn(embed_sum)
        self.embed_avg.data.lerp_(embed_sum, 1 - self.decay)
        n = self.cluster_size.sum()
        smoothed = (self.cluster_size + self.eps) / (n + self.codebook_size * self.eps) * n
        self.embed.data.copy_(self.embed_avg / smoothed.unsqueeze(1))

    def forward(self, x):
        flatten = x.reshape(-1, x.size(-1))
        index = torch.cdist(flatten.detach(), self.embed).argmin(-1)
        quantize = F.embedding(index, self.embed).view_as(x)
        if self.training:
            self._ema(flatten.detach(), F.one_hot(index, self.codebook_size).type(x.dtype))
        return x + (quantize - x).detach(), index.view(x.shape[:-1])


class VectorQuantize(nn.Module):
    def __init__(self, dim, codebook_size, commitment=1.0):
        super().__init__()
        self._codebook = EuclideanCodebook(dim, codebook_size, use_ddp=is_distributed())
        self.commitment = commitment

    def forward(self, x):
        quantize, index = self._codebook(x)
        return quantize, index, self.commitment * F.mse_loss(quantize.detach(), x)
