"""Quantizer whose codebook is a parameter with an optimizer of its own."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def mean_over_ranks_(tensor):
    dist.all_reduce(tensor)
    tensor.div_(dist.get_world_size())
    return tensor


class LearnedCodebook:
    """Lives outside of the wrapped model, so that it can step before the encoder does."""

    def __init__(self, codes, dim, lr, device):
        self.table = nn.Parameter(torch.randn(codes, dim, device=device) / dim**0.5)
        dist.broadcast(self.table.data, src=0)
        self.optimizer = torch.optim.SGD([self.table], lr=lr, momentum=0.9)

    def nearest(self, flat):
        with torch.no_grad():
            return torch.cdist(flat, self.table).argmin(dim=-1)

    def fit(self, flat, index):
        self.optimizer.zero_grad()
        loss = F.mse_loss(F.embedding(index, self.table), flat)
        loss.backward()
        self.optimizer.step()  # BUG
        return loss.detach()

    def state_dict(self):
        return {"table": self.table.detach().cpu(), "optimizer": self.optimizer.state_dict()}


class Compressor(nn.Module):
    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, images, codebook, commitment):
        latents = self.encoder(images)
        flat = latents.detach().flatten(0, -2)
        index = codebook.nearest(flat)
        fit_loss = codebook.fit(flat, index) if self.training else flat.new_zeros(())
        with torch.no_grad():
            quantized = F.embedding(index, codebook.table).view_as(latents)
        commit = F.mse_loss(latents, quantized) * commitment
        straight = latents + (quantized - latents).detach()
        return self.decoder(straight), commit, fit_loss


class Runner:
    def __init__(self, encoder, decoder, device, codes=8192, dim=64, lr=2e-4):
        self.device = device
        self.codebook = LearnedCodebook(codes, dim, lr=1.0, device=device)
        self.model = DDP(Compressor(encoder, decoder).to(device), device_ids=[device.index])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr)

    def step(self, images):
        output, commit, fit_loss = self.model(images, self.codebook, 0.25)
        loss = F.l1_loss(output, images) + commit
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return torch.stack([loss.detach(), fit_loss])

    def fit(self, loader, sampler, epochs, log_every=50):
        for epoch in range(epochs):
            sampler.set_epoch(epoch)
            for number, images in enumerate(loader):
                values = self.step(images.to(self.device))
                if number % log_every == 0:
                    values = mean_over_ranks_(values)
                    if dist.get_rank() == 0:
                        print(f"{epoch}:{number} loss {values[0]:.4f} codebook {values[1]:.4f}")

    def save(self, path):
        if dist.get_rank() == 0:
            torch.save({"model": self.model.module.state_dict(), "codebook": self.codebook.state_dict()}, path)
        dist.barrier()
