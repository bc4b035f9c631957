# thread: https://github.com/huggingface/transformers/pull/47811
"""Attention with more tensor-parallel ranks than key-value heads."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


def kv_replica_group(tp_size, num_kv_heads):
    """Group of the ranks that keep the same key-value head; all ranks take part."""
    world, rank = dist.get_world_size(), dist.get_rank()
    n_rep = tp_size // num_kv_heads
    mine = None
    for base in range(0, world, tp_size):
        for head in range(num_kv_heads):
            ranks = [base + head * n_rep + i for i in range(n_rep)]
            group = dist.new_group(ranks)
            if rank in ranks:
                mine = group
    return mine


class EnterTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class LeaveTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Attention(nn.Module):
    """Rank r computes query heads r*h .. r*h+h-1 and reads one key-value head."""

    def __init__(self, dim, num_heads, num_kv_heads, tp_group, kv_group):
        super().__init__()
        tp_size = dist.get_world_size(tp_group)
        assert tp_size >= num_kv_heads and tp_size % num_kv_heads == 0
        self.tp_group, self.kv_group = tp_group, kv_group
        self.local_heads, self.head_dim = num_heads // tp_size, dim // num_heads
        self.kv_index = dist.get_rank(tp_group) // (tp_size // num_kv_heads)
        self.q = nn.Linear(dim, self.local_heads * self.head_dim, bias=False)
        self.k = nn.Linear(dim, self.head_dim, bias=False)
        self.v = nn.Linear(dim, self.head_dim, bias=False)
        self.o = nn.Linear(self.local_heads * self.head_dim, dim, bias=False)

    def load(self, q, k, v, o):
        rank, hd = dist.get_rank(self.tp_group), self.head_dim
        width = self.local_heads * hd
        self.q.weight.data.copy_(q[rank * width : (rank + 1) * width])
        self.o.weight.data.copy_(o[:, rank * width : (rank + 1) * width])
        self.k.weight.data.copy_(k[self.kv_index * hd : (self.kv_index + 1) * hd])
        self.v.weight.data.copy_(v[self.kv_index * hd : (self.kv_index + 1) * hd])

    def forward(self, x):
        b, n, _ = x.shape
        x = EnterTP.apply(x, self.tp_group)
        q = self.q(x).view(b, n, self.local_heads, self.head_dim).transpose(1, 2)
        k = self.k(x).unsqueeze(1).expand(-1, self.local_heads, -1, -1)
        v = self.v(x).unsqueeze(1).expand(-1, self.local_heads, -1, -1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return LeaveTP.apply(self.o(out.transpose(1, 2).reshape(b, n, -1)), self.tp_group)

    def sync_kv_grads(self):
        for p in (self.k.weight, self.v.weight):
            dist.all_reduce(p.grad, group=self.kv_group)


def step(model, loss, optimizer, dp_group):
    loss.backward()
    for module in model.modules():
        if isinstance(module, Attention):
            module.sync_kv_grads()
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=dp_group)
    optimizer.step()
    optimizer.zero_grad()
