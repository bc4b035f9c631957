"""Vector quantiser: codebook trained by its own optimizer inside forward, or by EMA."""
# Source: lucidrains/vector-quantize-pytorch issue 222 (confirmed from the thread)
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Codebook(nn.Module):
    def __init__(self, dim, size, decay=0.99, learnable=False, use_ddp=True):
        super().__init__()
        embed = F.normalize(torch.randn(size, dim), dim=-1)
        self.size, self.decay, self.learnable = size, decay, learnable
        self.use_ddp = use_ddp and dist.is_initialized() and dist.get_world_size() > 1
        if learnable:
            self.embed = nn.Parameter(embed)
        else:
            self.register_buffer("embed", embed)
            self.register_buffer("cluster_size", torch.zeros(size))
            self.register_buffer("embed_avg", embed.clone())

    def all_reduce_fn(self, tensor):
        if self.use_ddp:
            dist.all_reduce(tensor)

    @torch.no_grad()
    def ema_update(self, flat, index):
        onehot = F.one_hot(index, self.size).type_as(flat)
        cluster_size, embed_sum = onehot.sum(0), onehot.t() @ flat
        self.all_reduce_fn(cluster_size)
        self.all_reduce_fn(embed_sum)
        self.cluster_size.lerp_(cluster_size, 1 - self.decay)
        self.embed_avg.lerp_(embed_sum, 1 - self.decay)
        self.embed.copy_(self.embed_avg / self.cluster_size.clamp_min(1e-5).unsqueeze(-1))

    def forward(self, x):
        flat = x.reshape(-1, x.size(-1))
        index = torch.cdist(flat, self.embed.detach()).argmin(-1)
        if self.training and not self.learnable:
            self.ema_update(flat, index)
        return F.embedding(index, self.embed).view_as(x), index


class VectorQuantize(nn.Module):
    def __init__(self, dim, codebook_size, in_place_codebook_optimizer=None, commitment_weight=1.0):
        super().__init__()
        learnable = in_place_codebook_optimizer is not None
        self._codebook = Codebook(dim, codebook_size, learnable=learnable)
        self.commitment_weight = commitment_weight
        self.in_place_codebook_optimizer = (
            in_place_codebook_optimizer(self._codebook.parameters()) if learnable else None
        )

    def _step_codebook(self, x):
        quantize, _ = self._codebook(x.detach())
        loss = F.mse_loss(quantize, x.detach())
        loss.backward()
        self.in_place_codebook_optimizer.step()  # BUG
        self.in_place_codebook_optimizer.zero_grad()

    def forward(self, x):
        if self.training and self.in_place_codebook_optimizer is not None:
            self._step_codebook(x)
        quantize, index = self._codebook(x)
        commit = F.mse_loss(quantize.detach(), x) * self.commitment_weight
        return x + (quantize - x).detach(), index, commit
