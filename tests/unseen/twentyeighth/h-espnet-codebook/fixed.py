"""Euclidean codebook with exponential moving average updates for neural codecs."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


def is_distributed():
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def ema_inplace(moving_avg, new, decay):
    moving_avg.data.mul_(decay).add_(new, alpha=1 - decay)


def laplace_smoothing(x, n_categories, epsilon=1e-5):
    return (x + epsilon) / (x.sum() + n_categories * epsilon)


class EuclideanCodebook(nn.Module):
    """Codebook whose entries follow the running mean of the vectors assigned to them."""

    def __init__(self, dim, codebook_size, decay=0.99, epsilon=1e-5):
        super().__init__()
        self.decay = decay
        self.epsilon = epsilon
        self.codebook_size = codebook_size
        embed = torch.empty(codebook_size, dim)
        nn.init.kaiming_uniform_(embed)
        self.register_buffer("cluster_size", torch.ones(codebook_size))
        self.register_buffer("embed", embed)
        self.register_buffer("embed_avg", embed.clone())

    def quantize(self, x):
        dist_ = (
            x.pow(2).sum(1, keepdim=True)
            - 2 * x @ self.embed.t()
            + self.embed.pow(2).sum(1)
        )
        return dist_.argmin(dim=-1)

    def forward(self, x):
        shape = x.shape
        flat = x.reshape(-1, shape[-1])
        indices = self.quantize(flat)
        onehot = F.one_hot(indices, self.codebook_size).type(flat.dtype)
        quantized = F.embedding(indices, self.embed).view(shape)
        if self.training:
            self._update(flat.detach(), onehot)
        return quantized, indices.view(shape[:-1])

    @torch.no_grad()
    def _update(self, flat, onehot):
        counts = onehot.sum(0)
        embed_sum = onehot.t() @ flat
        if is_distributed():
            dist.all_reduce(counts)
            dist.all_reduce(embed_sum)
        ema_inplace(self.cluster_size, counts, self.decay)
        ema_inplace(self.embed_avg, embed_sum, self.decay)
        total = self.cluster_size.sum()
        size = laplace_smoothing(self.cluster_size, self.codebook_size, self.epsilon) * total
        self.embed.data.copy_(self.embed_avg / size.unsqueeze(1))


class VectorQuantization(nn.Module):
    def __init__(self, dim, codebook_size, commitment_weight=1.0, **kwargs):
        super().__init__()
        self.codebook = EuclideanCodebook(dim, codebook_size, **kwargs)
        self.commitment_weight = commitment_weight

    def forward(self, x):
        quantized, indices = self.codebook(x)
        loss = self.commitment_weight * F.mse_loss(x, quantized.detach())
        quantized = x + (quantized - x).detach()
        return quantized, indices, loss


def build_codec(encoder, decoder, dim, codebook_size, device):
    model = nn.ModuleDict(
        {"encoder": encoder, "quantizer": VectorQuantization(dim, codebook_size), "decoder": decoder}
    ).to(device)
    if is_distributed():
        for tensor in (*model.parameters(), *model.buffers()):
            dist.broadcast(tensor.data, src=0)
        for name in ("encoder", "decoder"):
            model[name] = nn.parallel.DistributedDataParallel(
                model[name], device_ids=[device.index], broadcast_buffers=False
            )
    return model
