"""Vector quantiser with a codebook that is optimised in place."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Codebook(nn.Module):
    def __init__(self, dim, codebook_size):
        super().__init__()
        self.embed = nn.Parameter(torch.randn(codebook_size, dim) * 0.02)

    def forward(self, x):
        ind = torch.cdist(x.flatten(0, -2), self.embed).argmin(dim=-1)
        return F.embedding(ind, self.embed).view_as(x), ind.view(x.shape[:-1])


class VectorQuantize(nn.Module):
    def __init__(self, dim, codebook_size, make_optimizer, commitment_weight=0.25):
        super().__init__()
        self.codebook = Codebook(dim, codebook_size)
        self.optimizer = make_optimizer(self.codebook.parameters())
        self.commitment_weight = commitment_weight

    def forward(self, x):
        if self.training:
            with torch.enable_grad():
                quantize, _ = self.codebook(x.detach())
                F.mse_loss(quantize, x.detach()).backward()
            if dist.is_initialized():
                for p in self.codebook.parameters():
                    dist.all_reduce(p.grad)
                    p.grad /= dist.get_world_size()
            self.optimizer.step()
            self.optimizer.zero_grad()
        with torch.no_grad():
            quantize, ind = self.codebook(x)
        commit = F.mse_loss(x, quantize) * self.commitment_weight
        return x + (quantize - x).detach(), ind, commit


def wrap(autoencoder, device):
    ignored = [n for n, _ in autoencoder.named_parameters() if ".codebook." in n]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(autoencoder, ignored)
    return DistributedDataParallel(autoencoder.to(device), device_ids=[device])
