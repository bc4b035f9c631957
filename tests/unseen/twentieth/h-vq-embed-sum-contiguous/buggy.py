# vector-quantize-pytorch, issue 101 (commit e84e394): all_reduce works in place, so the reduced tensor has to be the
# one that is used afterwards, not a contiguous copy that nobody keeps.
"""EMA codebook of a vector quantiser, kept in sync over data-parallel ranks."""
import torch
import torch.nn.functional as F
from torch import distributed, einsum, nn


def noop(*args, **kwargs):
    pass


def ema_inplace(old, new, decay):
    old.mul_(decay).add_(new * (1 - decay))


def laplace_smoothing(x, n_categories, eps=1e-5):
    denom = x.sum(dim=-1, keepdim=True)
    return (x + eps) / (denom + n_categories * eps)


class EuclideanCodebook(nn.Module):
    def __init__(self, embed, decay=0.8, eps=1e-5, use_ddp=False):
        super().__init__()
        self.decay, self.eps, self.codebook_size = decay, eps, embed.shape[-2]
        self.all_reduce_fn = distributed.all_reduce if use_ddp else noop
        self.register_buffer("cluster_size", torch.ones(embed.shape[:2]))
        self.register_buffer("embed_avg", embed.clone())
        self.register_buffer("embed", embed)

    @torch.no_grad()
    def update(self, flatten, embed_ind):
        embed_onehot = F.one_hot(embed_ind, self.codebook_size).type(flatten.dtype)
        cluster_size = embed_onehot.sum(dim=1)
        self.all_reduce_fn(cluster_size)
        ema_inplace(self.cluster_size, cluster_size, self.decay)
        embed_sum = einsum("h n d, h n c -> h c d", flatten, embed_onehot)
        self.all_reduce_fn(embed_sum.contiguous())  # BUG: the sum over ranks is lost with the copy
        ema_inplace(self.embed_avg, embed_sum, self.decay)
        smoothed = laplace_smoothing(self.cluster_size, self.codebook_size, self.eps)
        smoothed = smoothed * self.cluster_size.sum(dim=-1, keepdim=True)
        self.embed.copy_(self.embed_avg / smoothed.unsqueeze(-1))
