"""Vector quantisation: counts and sums of codes of all ranks update the codebook by an average; straight-through."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


class Quantize(nn.Module):
    def __init__(self, dim, n, decay=0.99, eps=1e-5):
        super().__init__()
        self.n, self.decay, self.eps = n, decay, eps
        embed = torch.randn(dim, n)
        self.register_buffer("embed", embed)
        self.register_buffer("cluster_size", torch.zeros(n))
        self.register_buffer("embed_avg", embed.clone())

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        d = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ self.embed + self.embed.pow(2).sum(0, keepdim=True)
        idx = d.argmin(1)
        onehot = F.one_hot(idx, self.n).type(flat.dtype)
        quant = F.embedding(idx.view(x.shape[:-1]), self.embed.t())
        if self.training:
            count = onehot.sum(0)
            total = flat.t() @ onehot
            dist.all_reduce(count)
            dist.all_reduce(total)
            self.cluster_size.data.mul_(self.decay).add_(count, alpha=1 - self.decay)
            self.embed_avg.data.mul_(self.decay).add_(total.detach(), alpha=1 - self.decay)
            n = self.cluster_size.sum()
            size = (self.cluster_size + self.eps) / (n + self.n * self.eps) * n
            self.embed.data.copy_(self.embed_avg / size[None])
        diff = (quant.detach() - x).pow(2).mean()
        quant = x + (quant - x).detach()
        return quant, diff, idx


class VQVAE(nn.Module):
    def __init__(self, enc, dec, dim, n):
        super().__init__()
        self.enc, self.dec, self.q = enc, dec, Quantize(dim, n)

    def forward(self, x):
        z, diff, _ = self.q(self.enc(x))
        return self.dec(z), diff


def train(enc, dec, loader):
    model = DistributedDataParallel(VQVAE(enc, dec, 64, 512), broadcast_buffers=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    for x in loader:
        out, diff = model(x)
        loss = F.mse_loss(out, x) + 0.25 * diff
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
