"""Vector quantisation with an exponential-moving-average codebook, trained under DDP."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class EuclideanCodebook(nn.Module):
    def __init__(self, dim, codebook_size, decay=0.99, epsilon=1e-5):
        super().__init__()
        self.decay, self.epsilon, self.codebook_size = decay, epsilon, codebook_size
        embed = torch.empty(codebook_size, dim)
        nn.init.kaiming_uniform_(embed)
        if dist.is_initialized():
            embed = embed.cuda()
            dist.broadcast(embed, src=0)
        self.register_buffer("embed", embed)
        self.register_buffer("embed_avg", embed.clone())
        self.register_buffer("cluster_size", torch.zeros(codebook_size, device=embed.device))

    def forward(self, x):
        flat = x.reshape(-1, x.size(-1))
        indices = torch.cdist(flat, self.embed).argmin(dim=-1)
        quantized = F.embedding(indices, self.embed).view_as(x)
        if self.training:
            self._ema_update(flat.detach(), indices)
        return x + (quantized - x).detach(), indices.view(x.shape[:-1])

    @torch.no_grad()
    def _ema_update(self, flat, indices):
        onehot = F.one_hot(indices, self.codebook_size).type(flat.dtype)
        counts, embed_sum = onehot.sum(0), onehot.t() @ flat
        if dist.is_initialized():
            dist.all_reduce(counts)
            dist.all_reduce(embed_sum)
        self.cluster_size.lerp_(counts, 1 - self.decay)
        self.embed_avg.lerp_(embed_sum, 1 - self.decay)
        n = self.cluster_size.sum()
        smoothed = (self.cluster_size + self.epsilon) / (n + self.codebook_size * self.epsilon) * n
        self.embed.copy_(self.embed_avg / smoothed.unsqueeze(1))
