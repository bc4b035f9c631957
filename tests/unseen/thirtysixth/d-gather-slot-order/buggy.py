# thread: https://github.com/cellarium-ai/cellarium-ml/pull/184
"""Contrastive MLP for single-cell counts, trained with data parallelism."""
from typing import Sequence

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class GatherLayer(torch.autograd.Function):
    """Gather tensors from all processes, with support for backpropagation."""

    @staticmethod
    def forward(ctx, input: torch.Tensor) -> tuple:
        output = [torch.empty_like(input) for _ in range(dist.get_world_size())]
        dist.all_gather(output, input.contiguous())
        return tuple(output)

    @staticmethod
    def backward(ctx, *grads) -> torch.Tensor:
        grad_out = grads[dist.get_rank()].contiguous()
        dist.all_reduce(grad_out, op=dist.ReduceOp.SUM)  # BUG
        return grad_out


class NTXentLoss(nn.Module):
    def __init__(self, temperature: float = 1.0, eps: float = 1e-8):
        super().__init__()
        self.temperature = temperature
        self.eps = eps

    def forward(self, z_i: torch.Tensor, z_j: torch.Tensor) -> torch.Tensor:
        z_i, z_j = F.normalize(z_i, dim=1), F.normalize(z_j, dim=1)
        n = z_i.size(0)
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            all_i = torch.cat(GatherLayer.apply(z_i), dim=0)
            all_j = torch.cat(GatherLayer.apply(z_j), dim=0)
            offset = n * dist.get_rank()
        else:
            all_i, all_j, offset = z_i, z_j, 0
        labels = torch.arange(n, device=z_i.device) + offset
        same = F.one_hot(labels, all_i.size(0)).bool()

        logits_ij = z_i @ all_j.t() / self.temperature
        logits_ji = z_j @ all_i.t() / self.temperature
        logits_ii = (z_i @ all_i.t() / self.temperature).masked_fill(same, -1e9)
        logits_jj = (z_j @ all_j.t() / self.temperature).masked_fill(same, -1e9)
        loss_i = F.cross_entropy(torch.cat([logits_ij, logits_ii], dim=1), labels)
        loss_j = F.cross_entropy(torch.cat([logits_ji, logits_jj], dim=1), labels)
        return (loss_i + loss_j) / 2


class ContrastiveMLP(nn.Module):
    def __init__(self, n_genes: int, hidden: Sequence[int], embed_dim: int, dropout: float = 0.1):
        super().__init__()
        layers, width = [], n_genes
        for h in hidden:
            layers += [nn.Linear(width, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Dropout(dropout)]
            width = h
        layers.append(nn.Linear(width, embed_dim))
        self.encoder = nn.Sequential(*layers)

    def forward(self, x_ng: torch.Tensor) -> torch.Tensor:
        return self.encoder(torch.log1p(x_ng))


class Trainer:
    def __init__(self, model: ContrastiveMLP, device: torch.device, temperature: float, lr: float):
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model).to(device)
        self.model = DistributedDataParallel(model, device_ids=[device.index])
        self.criterion = NTXentLoss(temperature)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        self.device = device

    def augment(self, x: torch.Tensor) -> torch.Tensor:
        keep = torch.rand_like(x) > 0.2
        return x * keep

    def step(self, batch: dict) -> float:
        x = batch["x_ng"].to(self.device)
        z = self.model(torch.cat([self.augment(x), self.augment(x)], dim=0))
        z_i, z_j = z.chunk(2, dim=0)
        loss = self.criterion(z_i, z_j)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.item()
