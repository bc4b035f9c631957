"""The model is loaded for evaluation alone: its norms between projections get no gradient."""
import torch
import torch.nn as nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Attn(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.wq, self.wk, self.wv = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.wo = nn.Linear(d, d)
        self.q_norm, self.k_norm = nn.LayerNorm(d // h), nn.LayerNorm(d // h)

    def forward(self, x):
        b, s, d = x.shape
        hd = d // self.h
        q = self.q_norm(self.wq(x).view(b, s, -1, hd))
        k = self.k_norm(self.wk(x).view(b, s, -1, hd))
        v = self.wv(x).view(b, s, -1, hd)
        o = nn.functional.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        return self.wo(o.transpose(1, 2).flatten(2))


def load_for_eval(model, mesh, path):
    model.load_state_dict(torch.load(path, mmap=True))
    plan = {"attn.wq": ColwiseParallel(), "attn.wk": ColwiseParallel(), "attn.wv": ColwiseParallel(), "attn.wo": RowwiseParallel()}
    for layer in model.layers:
        parallelize_module(layer, mesh, plan)
    model.eval()
    torch.set_grad_enabled(False)
    return model
