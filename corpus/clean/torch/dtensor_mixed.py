"""DTensor next to local code: from_local, to_local with gradient placements, local_map, partial results, a metric over the mesh."""

from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.experimental import local_map

mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))


def row_linear(x, weight):
    """x is split over its last dim, the weight over its columns: the product is a pending sum."""
    local = F.linear(x.to_local(), weight.to_local())
    out = DTensor.from_local(local, mesh["tp"], [Partial()], run_check=False)
    return out.redistribute(placements=[Replicate()])


def scale_norm(x, weight):
    """The weight is replicated, the input split by sequence: the gradient of the local weight is partial."""
    local_weight = weight.to_local(grad_placements=[Partial()])
    local = F.rms_norm(x.to_local(), (x.shape[-1],), local_weight)
    return DTensor.from_local(local, mesh["tp"], [Shard(1)], run_check=False)


@partial(
    local_map,
    out_placements=[Shard(2)],
    in_placements=([Shard(2)], [Shard(2)], [Shard(2)]),
    device_mesh=mesh["tp"],
)
def attention(q, k, v):
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.Parameter(torch.ones(dim))
        self.wqkv = nn.Parameter(torch.empty(3, dim, dim))
        self.wo = nn.Parameter(torch.empty(dim, dim))

    def forward(self, x):
        h = scale_norm(x, self.norm).redistribute(placements=[Replicate()])
        batch, length, dim = h.shape
        q, k, v = (F.linear(h, w).view(batch, length, self.heads, dim // self.heads) for w in self.wqkv.unbind(0))
        out = attention(q, k, v).flatten(2)
        return x + row_linear(out, self.wo).redistribute(placements=[Shard(1)])


def shard_layer(name, module, device_mesh):
    if isinstance(module, Layer):
        placements = {"norm": [Replicate()], "wqkv": [Shard(1)], "wo": [Shard(1)]}
        for key, placement in placements.items():
            parameter = nn.Parameter(distribute_tensor(getattr(module, key), device_mesh, placement))
            module.register_parameter(key, parameter)


def build(dim, heads, depth):
    model = nn.Sequential(*[Layer(dim, heads) for _ in range(depth)]).cuda()
    distribute_module(model, mesh["tp"], partition_fn=shard_layer)
    for layer in model:
        fully_shard(layer, mesh=mesh["dp"])
    return fully_shard(model, mesh=mesh["dp"])


def train_step(model, optimizer, batch):
    x = distribute_tensor(batch, mesh["tp"], [Shard(1)])
    out = model(x)
    loss = out.float().pow(2).mean()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.full_tensor().item(), norm


@torch.no_grad()
def evaluate(model, batches):
    errors = torch.zeros((), device="cuda")
    for batch in batches:
        out = model(distribute_tensor(batch, mesh["tp"], [Shard(1)]))
        errors += out.redistribute(placements=[Replicate()]).to_local().abs().mean()
    total = DTensor.from_local(errors, mesh["dp"], [Partial("avg")], run_check=False)
    return total.full_tensor() / len(batches)
