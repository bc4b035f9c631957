"""Ulysses attention; tokens of all ranks counted, DDP over dp x sp."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def all_to_all_4d(x, scatter, gather, group):
    n = dist.get_world_size(group)
    parts = [t.contiguous() for t in x.chunk(n, dim=scatter)]
    out = [torch.empty_like(parts[0]) for _ in range(n)]
    dist.all_to_all(out, parts, group=group)
    return torch.cat(out, dim=gather).contiguous()


class SeqAllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, x, scatter, gather):
        ctx.group, ctx.scatter, ctx.gather = group, scatter, gather
        return all_to_all_4d(x, scatter, gather, group)

    @staticmethod
    def backward(ctx, grad):
        return None, SeqAllToAll.apply(ctx.group, grad, ctx.gather, ctx.scatter), None, None


class Attention(nn.Module):
    def __init__(self, dim, heads, group):
        super().__init__()
        self.heads, self.group = heads, group
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = (SeqAllToAll.apply(self.group, t.view(b, s, self.heads, -1), 2, 1) for t in self.qkv(x).chunk(3, -1))
        o = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True).transpose(1, 2)
        o = SeqAllToAll.apply(self.group, o, 1, 2)
        return self.proj(o.reshape(b, s, d))


def train(net, loader, sp_group, optimizer_of):
    model = DDP(net)  # over all ranks, those of sp included
    optimizer = optimizer_of(model.parameters())
    n, r = dist.get_world_size(sp_group), dist.get_rank(sp_group)
    for ids, labels in loader:
        ids, labels = ids.chunk(n, 1)[r], labels.chunk(n, 1)[r]
        nll = F.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), reduction="sum", ignore_index=-100)
        count = (labels != -100).sum()
        dist.all_reduce(count)
        (nll * dist.get_world_size() / count).backward()
        optimizer.step()
        optimizer.zero_grad()
