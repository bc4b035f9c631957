"""Weights of an MLP over the model axis, by helpers and loops; devices are counted, and the shape of the mesh depends on the count."""

import numpy as np
import torch
import torch.nn as nn
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
import torch_xla.distributed.spmd as xs

xr.use_spmd()
num_devices = xr.global_runtime_device_count()
model_axis = 1 if num_devices == 1 else 2
mesh = xs.Mesh(np.arange(num_devices), (num_devices // model_axis, model_axis), ("data", "model"))

COLUMN = ("model", None)
ROW = (None,) + ("model",)


class Mlp(nn.Module):
    def __init__(self, hidden=64, inner=256):
        super().__init__()
        self.up = nn.Linear(hidden, inner)
        self.down = nn.Linear(inner, hidden)

    def forward(self, x):
        h = torch.nn.functional.gelu(self.up(x))
        xs.mark_sharding(h, mesh, ("data", None, "model"))
        return self.down(h)


def shard(layer, spec):
    xs.mark_sharding(layer.weight, mesh, spec)
    if layer.bias is not None:
        xs.mark_sharding(layer.bias, mesh, spec[:1])


model = Mlp().to(xm.xla_device())
for layer, spec in ((model.up, COLUMN), (model.down, ROW)):
    shard(layer, spec)

try:
    xs.mark_sharding(model.up.weight, mesh, ("data",))
except AssertionError:
    pass

x = torch.randn(8, 16, 64, device=xm.xla_device())
xs.mark_sharding(x, mesh, ("data", None, None))
y = model(x)
whole = xs.clear_sharding(x)
xs.mark_sharding(whole, mesh, (None, None, "model"))
