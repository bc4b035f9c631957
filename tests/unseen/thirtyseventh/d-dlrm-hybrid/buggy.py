# thread: none (from memory of torchrec and dlrm)
"""Recommendation model: tables spread over the ranks, dense layers replicated."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class ExchangePooled(torch.autograd.Function):
    """[global batch, my tables, dim] -> [my batch, all tables, dim]."""

    @staticmethod
    def forward(ctx, pooled):
        world = dist.get_world_size()
        batch, tables, dim = pooled.shape
        pooled = pooled.contiguous()
        out = torch.empty_like(pooled)
        dist.all_to_all_single(out, pooled)
        out = out.view(world, batch // world, tables, dim)
        return out.transpose(0, 1).reshape(batch // world, world * tables, dim)

    @staticmethod
    def backward(ctx, grad):
        world = dist.get_world_size()
        batch, tables, dim = grad.shape
        grad = grad.reshape(batch, world, tables // world, dim).transpose(0, 1).contiguous()
        out = torch.empty_like(grad)
        dist.all_to_all_single(out, grad)
        return out.view(world * batch, tables // world, dim)  # BUG


class ShardedTables(nn.Module):
    """Each rank owns equally many tables and looks them up for every sample."""

    def __init__(self, rows, dim):
        super().__init__()
        world, rank = dist.get_world_size(), dist.get_rank()
        assert len(rows) % world == 0
        self.per_rank = len(rows) // world
        self.first = rank * self.per_rank
        mine = rows[self.first : self.first + self.per_rank]
        self.bags = nn.ModuleList([nn.EmbeddingBag(n, dim, mode="sum") for n in mine])

    def forward(self, ids):
        """ids: [my batch, all tables, bag]; the batch is equally large on each rank."""
        everything = [torch.empty_like(ids) for _ in range(dist.get_world_size())]
        dist.all_gather(everything, ids.contiguous())
        ids = torch.cat(everything)[:, self.first : self.first + self.per_rank]
        pooled = torch.stack([bag(ids[:, i]) for i, bag in enumerate(self.bags)], dim=1)
        return ExchangePooled.apply(pooled)


class Dense(nn.Module):
    def __init__(self, features, tables, dim):
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(features, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, dim))
        count = tables + 1
        self.top = nn.Sequential(nn.Linear(dim + count * count, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, x, embedded):
        x = self.bottom(x)
        stacked = torch.cat([x.unsqueeze(1), embedded], dim=1)
        crossed = (stacked @ stacked.transpose(1, 2)).flatten(1)
        return self.top(torch.cat([x, crossed], dim=1)).squeeze(-1)


def train(rows, features, dim, loader, cfg, device):
    torch.manual_seed(cfg.seed + dist.get_rank())
    tables = ShardedTables(rows, dim).to(device)
    dense = DistributedDataParallel(
        Dense(features, len(rows), dim).to(device), device_ids=[device.index]
    )
    dense_opt = torch.optim.SGD(dense.parameters(), lr=cfg.lr)
    table_opt = torch.optim.Adagrad(tables.parameters(), lr=cfg.lr, eps=1e-3)
    for x, ids, label in loader:
        logits = dense(x.to(device), tables(ids.to(device)))
        loss = F.binary_cross_entropy_with_logits(logits, label.to(device))
        loss.backward()
        dense_opt.step(), table_opt.step()
        dense_opt.zero_grad(), table_opt.zero_grad()
