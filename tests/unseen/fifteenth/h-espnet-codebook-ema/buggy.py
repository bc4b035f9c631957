# Reduced from ESPnet gan_codec quantizer (espnet/espnet pull request 6284, read).
# The codebook is a set of buffers updated by an exponential moving average in forward(); DDP does
# not reduce buffers (broadcast_buffers copies those of rank 0 over the others).
# What happens: the update uses the batch of one rank, what the other ranks saw is thrown away.
import torch
import torch.nn.functional as F
from torch import nn


def ema_inplace(moving_avg, new, decay):
    moving_avg.data.mul_(decay).add_(new, alpha=(1 - decay))


def laplace_smoothing(x, n_categories, epsilon=1e-5):
    return (x + epsilon) / (x.sum() + n_categories * epsilon)


class EuclideanCodebook(nn.Module):
    def __init__(self, dim, codebook_size, decay=0.99, epsilon=1e-5):
        super().__init__()
        embed = torch.randn(codebook_size, dim)
        self.decay, self.epsilon, self.codebook_size = decay, epsilon, codebook_size
        self.register_buffer("cluster_size", torch.zeros(codebook_size))
        self.register_buffer("embed", embed)
        self.register_buffer("embed_avg", embed.clone())

    def quantize(self, x):
        embed = self.embed.t()
        d = -(x.pow(2).sum(1, keepdim=True) - 2 * x @ embed + embed.pow(2).sum(0, keepdim=True))
        return d.max(dim=-1).indices

    def forward(self, x):
        shape, dtype = x.shape, x.dtype
        x = x.reshape(-1, shape[-1])
        embed_ind = self.quantize(x)
        embed_onehot = F.one_hot(embed_ind, self.codebook_size).type(dtype)
        quantize = F.embedding(embed_ind, self.embed).view(shape)

        if self.training:
            cluster_size = embed_onehot.sum(0)
            embed_sum = (x.t() @ embed_onehot).t().contiguous()
            ema_inplace(self.cluster_size, cluster_size, self.decay)  # BUG
            ema_inplace(self.embed_avg, embed_sum, self.decay)
            cluster_size = (
                laplace_smoothing(self.cluster_size, self.codebook_size, self.epsilon) * self.cluster_size.sum()
            )
            self.embed.data.copy_(self.embed_avg / cluster_size.unsqueeze(1))
        return quantize, embed_ind.view(*shape[:-1])
