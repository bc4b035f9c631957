# lucidrains/vector-quantize-pytorch, issue 222 - https://github.com/lucidrains/vector-quantize-pytorch/issues/222 (read)
# The learnable codebook is optimised inside forward with its own backward and optimizer step, out of reach
# of DDP: every worker updates its codebook with the gradient of its own batch.
"""Vector quantizer with an in-place optimised codebook, behind an encoder that is wrapped in DDP."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Codebook(nn.Module):
    def __init__(self, codebook_size, dim):
        super().__init__()
        self.use_ddp = dist.is_initialized() and dist.get_world_size() > 1
        self.embed = nn.Parameter(torch.randn(codebook_size, dim))
        if self.use_ddp:
            dist.broadcast(self.embed.data, src=0)

    def forward(self, x):
        embed_ind = torch.cdist(x.detach(), self.embed.detach()).argmin(dim=-1)
        return F.embedding(embed_ind, self.embed), embed_ind


class VectorQuantize(nn.Module):
    def __init__(self, dim, codebook_size, in_place_codebook_optimizer, commitment_weight=1.0):
        super().__init__()
        self._codebook = Codebook(codebook_size, dim)
        self.in_place_codebook_optimizer = in_place_codebook_optimizer(self._codebook.parameters())
        self.commitment_weight = commitment_weight

    def forward(self, x):
        # x: [batch, dim]; this module stays outside of DDP
        quantize, embed_ind = self._codebook(x)
        if self.training:
            F.mse_loss(quantize, x.detach()).backward()
            self.in_place_codebook_optimizer.step()  # BUG: gradient of the local batch
            self.in_place_codebook_optimizer.zero_grad()
            quantize, embed_ind = self._codebook(x)
        quantize = quantize.detach()
        commit_loss = F.mse_loss(quantize, x) * self.commitment_weight
        return x + (quantize - x).detach(), embed_ind, commit_loss
