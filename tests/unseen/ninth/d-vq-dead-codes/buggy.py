"""Vector quantizer with a codebook kept by moving averages over all ranks."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def draw_rows(rows, count):
    picks = torch.randint(0, rows.size(0), (count,), device=rows.device)
    return rows[picks].contiguous()


def draw_rows_shared(rows, count):
    picked = draw_rows(rows, count)
    dist.broadcast(picked, src=0)
    return picked


class EmaCodebook(nn.Module):
    def __init__(self, codes, dim, decay=0.99, dead_below=1.0, eps=1e-5):
        super().__init__()
        self.decay, self.dead_below, self.eps = decay, dead_below, eps
        embed = torch.randn(codes, dim)
        self.register_buffer("embed", embed)
        self.register_buffer("embed_sum", embed.clone())
        self.register_buffer("cluster_size", torch.ones(codes))

    @torch.no_grad()
    def lookup(self, flat):
        return torch.cdist(flat, self.embed).argmin(dim=-1)

    @torch.no_grad()
    def update(self, flat, index):
        onehot = F.one_hot(index, self.embed.size(0)).type_as(flat)
        counts = onehot.sum(dim=0)
        sums = onehot.T @ flat
        dist.all_reduce(counts)
        dist.all_reduce(sums)
        self.cluster_size.lerp_(counts, 1 - self.decay)
        self.embed_sum.lerp_(sums, 1 - self.decay)
        total = self.cluster_size.sum()
        smoothed = (self.cluster_size + self.eps) / (total + self.eps * len(counts)) * total
        self.embed.copy_(self.embed_sum / smoothed.unsqueeze(1))
        self.revive(flat)

    def revive(self, flat):
        dead = self.cluster_size < self.dead_below
        count = int(dead.sum())
        if count == 0:
            return
        fresh = draw_rows(flat, count)  # BUG
        self.embed[dead] = fresh
        self.embed_sum[dead] = fresh * self.dead_below
        self.cluster_size[dead] = self.dead_below


class Quantizer(nn.Module):
    def __init__(self, codes, dim, commitment=0.25):
        super().__init__()
        self.codebook = EmaCodebook(codes, dim)
        self.commitment = commitment

    def forward(self, x):
        flat = x.detach().reshape(-1, x.size(-1)).float()
        index = self.codebook.lookup(flat)
        quantized = F.embedding(index, self.codebook.embed).view_as(x)
        if self.training:
            self.codebook.update(flat, index)
        loss = self.commitment * F.mse_loss(x, quantized)
        return x + (quantized - x).detach(), loss


class Autoencoder(nn.Module):
    def __init__(self, encoder, decoder, codes=1024, dim=128):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.quantizer = Quantizer(codes, dim)

    def forward(self, wave):
        latents, commit = self.quantizer(self.encoder(wave))
        return self.decoder(latents), commit


def train(encoder, decoder, loader, sampler, device, epochs, lr=3e-4):
    model = Autoencoder(encoder, decoder).to(device)
    model = DDP(model, device_ids=[device.index], broadcast_buffers=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, betas=(0.5, 0.9))
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for wave in loader:
            wave = wave.to(device, non_blocking=True)
            output, commit = model(wave)
            loss = F.l1_loss(output, wave) + commit
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
