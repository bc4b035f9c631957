# Source: espnet/espnet PR #6284, espnet2/gan_codec/shared/quantizer/modules/core_vq.py
# The EMA statistics of the codebook (buffers, not parameters) are updated from the local batch of
# each rank. DDP runs with broadcast_buffers=False, so the codebooks of the ranks drift apart.
# Repair: all_reduce the cluster sizes and sums before the EMA.
import torch
import torch.distributed as dist
import torch.nn.functional as F
from einops import rearrange
from torch import nn


def all_reduce_sum(t):
    if dist.is_initialized() and dist.get_world_size() > 1:
        dist.all_reduce(t, op=dist.ReduceOp.SUM)
    return t


def ema_inplace(moving_avg, new, decay: float):
    moving_avg.data.mul_(decay).add_(new, alpha=(1 - decay))


def laplace_smoothing(x, n_categories: int, epsilon: float = 1e-5):
    return (x + epsilon) / (x.sum() + n_categories * epsilon)


class EuclideanCodebook(nn.Module):
    """Codebook with Euclidean distance, learned by exponential moving averages."""

    def __init__(self, dim: int, codebook_size: int, decay: float = 0.99, epsilon: float = 1e-5):
        super().__init__()
        self.decay, self.epsilon = decay, epsilon
        self.codebook_size = codebook_size
        embed = torch.empty(codebook_size, dim)
        nn.init.kaiming_uniform_(embed)
        self.register_buffer("cluster_size", torch.zeros(codebook_size))
        self.register_buffer("embed", embed)
        self.register_buffer("embed_avg", embed.clone())

    def quantize(self, x):
        embed = self.embed.t()
        dist_ = -(x.pow(2).sum(1, keepdim=True) - 2 * x @ embed + embed.pow(2).sum(0, keepdim=True))
        return dist_.max(dim=-1).indices

    def forward(self, x):
        shape, dtype = x.shape, x.dtype
        x = rearrange(x, "... d -> (...) d")
        embed_ind = self.quantize(x)
        embed_onehot = F.one_hot(embed_ind, self.codebook_size).type(dtype)
        quantize = F.embedding(embed_ind.view(*shape[:-1]), self.embed)

        if self.training:
            ema_inplace(self.cluster_size, all_reduce_sum(embed_onehot.sum(0)), self.decay)
            embed_sum = all_reduce_sum(x.detach().t() @ embed_onehot)
            ema_inplace(self.embed_avg, embed_sum.t(), self.decay)
            cluster_size = (
                laplace_smoothing(self.cluster_size, self.codebook_size, self.epsilon) * self.cluster_size.sum()
            )
            self.embed.data.copy_(self.embed_avg / cluster_size.unsqueeze(1))

        return quantize, embed_ind


def wrap(model: nn.Module, device_id: int) -> nn.Module:
    return torch.nn.parallel.DistributedDataParallel(model, device_ids=[device_id], broadcast_buffers=False)
