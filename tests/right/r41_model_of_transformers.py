import torch
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from transformers import AutoModelForCausalLM


class Adapter(nn.Module):
    """Whole on every rank; `gate_proj` scales."""

    def __init__(self, dim, r):
        super().__init__()
        self.down_proj = nn.Linear(dim, r)
        self.up_proj = nn.Linear(r, dim)
        self.gate_proj = nn.Linear(dim, dim)

    def forward(self, x):
        return self.up_proj(self.down_proj(x)) * torch.sigmoid(self.gate_proj(x))


def main(name):
    mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))
    model = AutoModelForCausalLM.from_pretrained(name)
    for layer in model.model.layers:
        parallelize_module(layer.mlp, mesh, {"gate_proj": ColwiseParallel(), "up_proj": ColwiseParallel(), "down_proj": RowwiseParallel()})
    return model
