"""Vector quantisation with a codebook that is optimised inside forward.

Source: https://github.com/lucidrains/vector-quantize-pytorch/issues/222
Wrong: the codebook is stepped in place from the local gradient before DDP's reduction runs (and it
is not part of that reduction), so every worker gets its own codebook.
Repair: average the codebook gradients over the workers before the in-place step.
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class LearnableCodebook(nn.Module):
    def __init__(self, dim, codebook_size, use_ddp=False):
        super().__init__()
        self.embed = nn.Parameter(torch.randn(codebook_size, dim))
        self.use_ddp = use_ddp
        if use_ddp:
            dist.broadcast(self.embed.data, src=0)

    def forward(self, x):
        ind = torch.cdist(x.detach(), self.embed.detach()).argmin(dim=-1)
        return F.embedding(ind, self.embed), ind


class VectorQuantize(nn.Module):
    def __init__(self, dim, codebook_size, in_place_codebook_optimizer, sync_codebook=None, commitment_weight=1.0):
        super().__init__()
        if sync_codebook is None:
            sync_codebook = dist.is_initialized() and dist.get_world_size() > 1
        self._codebook = LearnableCodebook(dim, codebook_size, use_ddp=sync_codebook)
        self.in_place_codebook_optimizer = in_place_codebook_optimizer(self._codebook.parameters())
        self.commitment_weight = commitment_weight

    def forward(self, x):
        quantize, ind = self._codebook(x)
        if self.training:
            loss = F.mse_loss(quantize, x.detach())
            loss.backward()
            self.in_place_codebook_optimizer.step()  # BUG: gradients of this worker's batch only
            self.in_place_codebook_optimizer.zero_grad()
            quantize, ind = self._codebook(x)
        quantize = quantize.detach()
        commit_loss = F.mse_loss(quantize, x) * self.commitment_weight
        return x + (quantize - x).detach(), ind, commit_loss


def freeze_for_ddp(model):
    model._ddp_params_and_buffers_to_ignore = [
        name for name, _ in model.named_parameters() if "._codebook." in f".{name}"
    ]
