# vector-quantize-pytorch, issue 222 (commit 2b367e5): the in-place codebook optimizer steps inside forward, where DDP
# reduces nothing; the gradients of the codebook have to be averaged by hand before that step.
"""Vector quantiser whose codebook is learned by its own optimizer inside forward."""
import torch
import torch.nn.functional as F
from torch import distributed, nn


class EuclideanCodebook(nn.Module):
    def __init__(self, dim, codebook_size, use_ddp=False):
        super().__init__()
        self.use_ddp = use_ddp
        self.embed = nn.Parameter(torch.randn(codebook_size, dim))

    def forward(self, x):
        ind = torch.cdist(x, self.embed).argmin(dim=-1)
        return self.embed[ind], ind


class VectorQuantize(nn.Module):
    def __init__(self, dim, codebook_size, in_place_codebook_optimizer, use_ddp=False):
        super().__init__()
        self._codebook = EuclideanCodebook(dim, codebook_size, use_ddp=use_ddp)
        self.in_place_codebook_optimizer = in_place_codebook_optimizer(self._codebook.parameters())

    def update_in_place_optimizer(self):
        if self._codebook.use_ddp:
            for param in self._codebook.parameters():
                if param.grad is not None:
                    distributed.all_reduce(param.grad)
                    param.grad /= distributed.get_world_size()
        self.in_place_codebook_optimizer.step()
        self.in_place_codebook_optimizer.zero_grad()

    def forward(self, x):
        if self.training:
            with torch.enable_grad():
                quantize, _ = self._codebook(x.detach())
                F.mse_loss(quantize, x.detach()).backward()
            self.update_in_place_optimizer()
        with torch.no_grad():
            quantize, embed_ind = self._codebook(x)
        commit_loss = F.mse_loss(x, quantize)
        return x + (quantize - x).detach(), embed_ind, commit_loss
