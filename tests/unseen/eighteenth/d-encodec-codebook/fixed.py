"""Codebook of a neural audio codec, updated by moving averages.

Source: vector quantizers as in EnCodec and its forks (from memory). The counts of the codes are
summed over the ranks, the sums of the vectors assigned to them are not. Each rank divides a local
sum by a global count, so the codebooks shrink and drift apart.
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class EuclideanCodebook(torch.nn.Module):
    def __init__(self, dim, codebook_size, decay=0.99, eps=1e-5):
        super().__init__()
        self.decay, self.eps, self.codebook_size = decay, eps, codebook_size
        embed = torch.empty(codebook_size, dim)
        torch.nn.init.kaiming_uniform_(embed)
        self.register_buffer("embed", embed)
        self.register_buffer("embed_avg", embed.clone())
        self.register_buffer("cluster_size", torch.ones(codebook_size))

    @torch.no_grad()
    def update(self, flat, index):
        onehot = F.one_hot(index, self.codebook_size).type(flat.dtype)
        cluster_size = onehot.sum(dim=0)
        embed_sum = onehot.t() @ flat
        dist.all_reduce(cluster_size)
        dist.all_reduce(embed_sum)
        self.cluster_size.lerp_(cluster_size, 1 - self.decay)
        self.embed_avg.lerp_(embed_sum, 1 - self.decay)
        total = self.cluster_size.sum()
        smoothed = (self.cluster_size + self.eps) / (total + self.codebook_size * self.eps) * total
        self.embed.copy_(self.embed_avg / smoothed.unsqueeze(1))

    def forward(self, x):
        flat = x.detach().flatten(0, -2).float()
        distance = torch.cdist(flat, self.embed)
        index = distance.argmin(dim=-1)
        quantized = F.embedding(index, self.embed).view_as(x)
        if self.training:
            self.update(flat, index)
        commit = F.mse_loss(x, quantized)
        return x + (quantized - x).detach(), commit


def wrap(codec, local_rank):
    for buffer in codec.buffers():
        dist.broadcast(buffer, src=0)
    return DDP(codec, device_ids=[local_rank], broadcast_buffers=False)
