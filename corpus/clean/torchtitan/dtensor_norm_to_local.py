"""Norms of heads with weights that are DTensors: heads are split, so the gradient of the local weight is partial, and is said to be."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Replicate, distribute_tensor


class HeadNorm(nn.Module):
    def __init__(self, head_dim, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(head_dim))

    def parallelize(self, tp_mesh):
        replicated = distribute_tensor(self.weight.data, tp_mesh, [Replicate()])
        self.weight = nn.Parameter(replicated)
        return self

    def local_weight(self):
        weight = self.weight
        if not isinstance(weight, DTensor):
            return weight
        grad_placements = [Partial() if p.is_replicate() else p for p in weight.placements]
        return weight.to_local(grad_placements=grad_placements)

    def forward(self, x):
        # x: [b, s, heads / tp, head_dim] of this rank
        return F.rms_norm(x, (x.shape[-1],), self.local_weight(), self.eps)


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.head_dim = dim // heads
        self.wq, self.wk, self.wv = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.wo = nn.Linear(dim, dim, bias=False)
        self.q_norm, self.k_norm = HeadNorm(self.head_dim), HeadNorm(self.head_dim)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = (w(x).view(b, s, -1, self.head_dim) for w in (self.wq, self.wk, self.wv))
        q, k = self.q_norm(q), self.k_norm(k)
        out = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        return self.wo(out.transpose(1, 2).reshape(b, s, -1))


@torch.no_grad()
def weight_norms(model):
    norms = {}
    for name, param in model.named_parameters():
        full = param.full_tensor() if isinstance(param, DTensor) else param
        norms[name] = full.float().norm().item()
    return norms
