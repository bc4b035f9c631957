# thread: https://github.com/lucidrains/vector-quantize-pytorch/pull/17
"""Vector quantisation whose codebook follows a moving average."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


def is_distributed():
    return dist.is_initialized() and dist.get_world_size() > 1


def all_reduce_(tensor):
    if is_distributed():
        dist.all_reduce(tensor)
    return tensor


def broadcast_(tensor):
    if is_distributed():
        dist.broadcast(tensor, src=0)
    return tensor


def sample_vectors(samples, num):
    indices = torch.randint(0, samples.shape[0], (num,), device=samples.device)
    return samples[indices].contiguous()


class EuclideanCodebook(nn.Module):
    def __init__(self, dim, codebook_size, decay=0.99, eps=1e-5, threshold=2.0):
        super().__init__()
        self.codebook_size, self.decay, self.eps = codebook_size, decay, eps
        self.threshold = threshold
        self.register_buffer("initted", torch.zeros(1, dtype=torch.bool))
        self.register_buffer("cluster_size", torch.zeros(codebook_size))
        self.register_buffer("embed", torch.zeros(codebook_size, dim))
        self.register_buffer("embed_avg", torch.zeros(codebook_size, dim))

    def init_embed_(self, flat):
        if self.initted:
            return
        self.embed.copy_(broadcast_(sample_vectors(flat, self.codebook_size)))
        self.embed_avg.copy_(self.embed)
        self.cluster_size.fill_(1.0)
        self.initted.fill_(True)

    def expire_codes_(self, flat):
        expired = self.cluster_size < self.threshold
        if not expired.any():
            return
        fresh = broadcast_(sample_vectors(flat, self.codebook_size))
        self.embed.copy_(torch.where(expired[:, None], fresh, self.embed))
        self.embed_avg.copy_(torch.where(expired[:, None], fresh * self.threshold, self.embed_avg))
        self.cluster_size.masked_fill_(expired, self.threshold)

    @torch.no_grad()
    def ema_update_(self, flat, indices):
        onehot = F.one_hot(indices, self.codebook_size).type(flat.dtype)
        counts = all_reduce_(onehot.sum(dim=0))
        sums = all_reduce_(onehot.t() @ flat)
        self.cluster_size.lerp_(counts, 1 - self.decay)
        self.embed_avg.lerp_(sums, 1 - self.decay)
        total = self.cluster_size.sum()
        smoothed = (self.cluster_size + self.eps) / (total + self.codebook_size * self.eps) * total
        self.embed.copy_(self.embed_avg / smoothed[:, None])
        self.expire_codes_(flat)

    def forward(self, x):
        flat = x.detach().reshape(-1, x.shape[-1]).float()
        if self.training:
            self.init_embed_(flat)
        indices = torch.cdist(flat, self.embed).argmin(dim=-1)
        quantized = F.embedding(indices, self.embed).view_as(x).to(x.dtype)
        if self.training:
            self.ema_update_(flat, indices)
        commit = F.mse_loss(x, quantized)
        return x + (quantized - x).detach(), indices.view(x.shape[:-1]), commit
