# Reduces encodec / vector-quantize-pytorch codebooks: the cluster counts are summed over the ranks while the summed
# vectors they are paired with are those of the own rank, so the codes shrink and differ between ranks.
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class EuclideanCodebook(nn.Module):
    def __init__(self, dim, size, decay=0.99, eps=1e-5):
        super().__init__()
        embed = torch.randn(size, dim)
        self.decay, self.eps, self.size = decay, eps, size
        self.register_buffer("cluster_size", torch.ones(size))
        self.register_buffer("embed", embed)
        self.register_buffer("embed_avg", embed.clone())

    def forward(self, x):
        flat = x.detach().reshape(-1, x.shape[-1])
        codes = torch.cdist(flat, self.embed).argmin(dim=-1)
        quantized = F.embedding(codes, self.embed).view_as(x)
        if self.training:
            self.update(flat, F.one_hot(codes, self.size).type(flat.dtype))
        return x + (quantized - x).detach(), F.mse_loss(x, quantized.detach())

    @torch.no_grad()
    def update(self, flat, onehot):
        counts = onehot.sum(dim=0)
        embed_sum = onehot.t() @ flat
        dist.all_reduce(counts)
        self.cluster_size.mul_(self.decay).add_(counts, alpha=1 - self.decay)
        self.embed_avg.mul_(self.decay).add_(embed_sum, alpha=1 - self.decay)  # BUG
        total = self.cluster_size.sum()
        smoothed = (self.cluster_size + self.eps) / (total + self.size * self.eps) * total
        self.embed = self.embed_avg / smoothed.unsqueeze(1)


class Codec(nn.Module):
    def __init__(self, encoder, decoder, dim, size):
        super().__init__()
        self.encoder, self.decoder, self.quantizer = encoder, decoder, EuclideanCodebook(dim, size)

    def forward(self, wav):
        z, commit = self.quantizer(self.encoder(wav))
        return self.decoder(z), commit


def build(encoder, decoder, device):
    codec = Codec(encoder, decoder, 128, 1024).to(device)
    return DistributedDataParallel(codec, device_ids=[device.index], broadcast_buffers=False)
