# plan by isinstance and by attributes that also exist elsewhere
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module, PrepareModuleInput, PrepareModuleOutput


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = self.qkv(x).view(b, s, -1, 3, 64).unbind(3)
        o = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        return self.proj(o.transpose(1, 2).reshape(b, s, -1))


class Encoder(nn.Module):
    def __init__(self, dim, heads, n):
        super().__init__()
        self.layers = nn.ModuleList([Attention(dim, heads) for _ in range(n)])

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x


def apply(model, mesh, plan=None):
    for name, module in model.named_modules():
        if isinstance(module, Attention):
            parallelize_module(module, mesh, {"qkv": ColwiseParallel(), "proj": RowwiseParallel()})


def apply_sp(model, mesh):
    for layer in model.layers:
        parallelize_module(
            layer,
            mesh,
            {
                "qkv": ColwiseParallel(input_layouts=Shard(1)),
                "proj": RowwiseParallel(output_layouts=Shard(1)),
            },
        )


def gathered(model, mesh):
    parallelize_module(model, mesh, {"qkv": ColwiseParallel(output_layouts=Replicate()), "proj": ColwiseParallel(output_layouts=Replicate())})
