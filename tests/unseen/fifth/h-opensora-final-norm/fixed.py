"""Sequence-parallel transformer: which norms get their gradient summed."""
import torch
import torch.distributed as dist
import torch.nn as nn


class Layer(nn.Module):
    def __init__(self, dim, attn, ffn):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn, self.ffn = attn, ffn

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.ffn(self.norm2(x))


class Model(nn.Module):
    def __init__(self, dim, layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.final_norm = nn.LayerNorm(dim)

    def forward(self, x):
        # x: [batch, seq / sp, dim]
        for layer in self.layers:
            x = layer(x)
        return self.final_norm(x)


def sync_norm_grads(model: Model, sp_group):
    norms = [n for layer in model.layers for n in (layer.norm1, layer.norm2)]
    norms.append(model.final_norm)
    for norm in norms:
        for p in norm.parameters():
            dist.all_reduce(p.grad, group=sp_group)
