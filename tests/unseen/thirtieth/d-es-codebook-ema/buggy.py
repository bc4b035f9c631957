"""Euclidean codebook with EMA updates, and the training of a codec around it."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def ema_inplace(moving_avg, new, decay):
    moving_avg.data.mul_(decay).add_(new, alpha=1 - decay)


def laplace_smoothing(x, n_categories, epsilon=1e-5):
    return (x + epsilon) / (x.sum() + n_categories * epsilon) * x.sum()


def all_reduce_sum(*tensors):
    if dist.is_available() and dist.is_initialized():
        for t in tensors:
            dist.all_reduce(t, op=dist.ReduceOp.SUM)


class EuclideanCodebook(nn.Module):
    def __init__(self, dim, codebook_size, decay=0.99, epsilon=1e-5, threshold_ema_dead_code=2):
        super().__init__()
        self.decay = decay
        self.epsilon = epsilon
        self.codebook_size = codebook_size
        self.threshold_ema_dead_code = threshold_ema_dead_code
        embed = torch.empty(codebook_size, dim)
        nn.init.kaiming_uniform_(embed)
        self.register_buffer("embed", embed)
        self.register_buffer("embed_avg", embed * threshold_ema_dead_code)
        self.register_buffer("cluster_size", torch.full((codebook_size,), float(threshold_ema_dead_code)))

    def expire_codes_(self, x):
        expired = self.cluster_size < self.threshold_ema_dead_code
        pick = torch.randint(0, x.size(0), (self.codebook_size,), device=x.device)
        samples = x[pick]
        dist.broadcast(samples, src=0)
        self.embed.data[expired] = samples[expired]
        self.embed_avg.data[expired] = samples[expired] * self.threshold_ema_dead_code
        self.cluster_size.data[expired] = self.threshold_ema_dead_code

    def quantize(self, x):
        d = x.pow(2).sum(1, keepdim=True) - 2 * x @ self.embed.t() + self.embed.pow(2).sum(1)
        return d.argmin(dim=-1)

    @torch.no_grad()
    def update_(self, x, ind):
        onehot = F.one_hot(ind, self.codebook_size).type(x.dtype)
        count = onehot.sum(0)
        embed_sum = onehot.t() @ x
        all_reduce_sum(count)  # BUG
        ema_inplace(self.cluster_size, count, self.decay)
        ema_inplace(self.embed_avg, embed_sum, self.decay)
        size = laplace_smoothing(self.cluster_size, self.codebook_size, self.epsilon)
        self.embed.data.copy_(self.embed_avg / size.unsqueeze(1))
        self.expire_codes_(x)

    def forward(self, x):
        shape = x.shape
        flat = x.reshape(-1, shape[-1])
        ind = self.quantize(flat.detach())
        quantized = F.embedding(ind, self.embed).view(shape)
        if self.training:
            self.update_(flat.detach(), ind)
        commit = F.mse_loss(quantized.detach(), x)
        return x + (quantized - x).detach(), commit


class Codec(nn.Module):
    def __init__(self, channels=128, codebook_size=1024):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv1d(1, channels, 7, padding=3), nn.ELU(), nn.Conv1d(channels, channels, 4, 4))
        self.quantizer = EuclideanCodebook(channels, codebook_size)
        self.decoder = nn.Sequential(nn.ConvTranspose1d(channels, channels, 4, 4), nn.ELU(), nn.Conv1d(channels, 1, 7, padding=3))

    def forward(self, wav):
        z = self.encoder(wav).transpose(1, 2)
        z, commit = self.quantizer(z)
        return self.decoder(z.transpose(1, 2)), commit


def train(loader, device, epochs, lr=3e-4):
    model = DDP(Codec().to(device), device_ids=[device.index], broadcast_buffers=False)
    optim = torch.optim.AdamW(model.parameters(), lr=lr)
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        for wav in loader:
            wav = wav.to(device)
            recon, commit = model(wav)
            loss = F.l1_loss(recon, wav) + 0.25 * commit
            optim.zero_grad()
            loss.backward()
            optim.step()
