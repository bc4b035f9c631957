# lucidrains/vector-quantize-pytorch issue 222 (commit 2b367e5)
# The learnable codebook is updated by an optimizer called inside the module's forward; its gradients are never
# averaged over the ranks, so the codebooks of the workers drift apart.
"""Vector quantisation with a codebook that is optimised in place."""
import torch
import torch.nn.functional as F
from torch import nn
from torch import distributed


def exists(v):
    return v is not None


class Codebook(nn.Module):
    def __init__(self, dim, codebook_size, use_ddp):
        super().__init__()
        embed = torch.randn(codebook_size, dim)
        if use_ddp:
            embed = embed.cuda()
            distributed.broadcast(embed, src=0)
        self.embed = nn.Parameter(embed)
        self.use_ddp = use_ddp

    def forward(self, x):
        ind = torch.cdist(x.detach(), self.embed.detach()).argmin(dim=-1)
        return F.embedding(ind, self.embed), ind


class VectorQuantize(nn.Module):
    def __init__(self, dim, codebook_size, commitment_weight=1.0, in_place_codebook_optimizer=None, use_ddp=False):
        super().__init__()
        self._codebook = Codebook(dim, codebook_size, use_ddp)
        self.commitment_weight = commitment_weight
        self.in_place_codebook_optimizer = None
        if exists(in_place_codebook_optimizer):
            self.in_place_codebook_optimizer = in_place_codebook_optimizer(self._codebook.parameters())

    def update_in_place_optimizer(self):
        if not exists(self.in_place_codebook_optimizer):
            return
        self.in_place_codebook_optimizer.step()  # BUG
        self.in_place_codebook_optimizer.zero_grad()

    def forward(self, x):
        quantize, ind = self._codebook(x)
        if self.training and exists(self.in_place_codebook_optimizer):
            loss = F.mse_loss(quantize, x.detach())
            loss.backward()
            self.update_in_place_optimizer()
            quantize, ind = self._codebook(x)
        commit_loss = F.mse_loss(quantize.detach(), x) * self.commitment_weight
        quantize = x + (quantize - x).detach()
        return quantize, ind, commit_loss
