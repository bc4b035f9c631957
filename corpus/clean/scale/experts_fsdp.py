"""Experts are sharded over fewer ranks than the rest, and told to divide by as many."""

import torch
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def parallelize(model, dp_mesh, edp_mesh):
    for block in model.layers:
        fully_shard(block.moe.experts, mesh=edp_mesh)
        block.moe.experts.set_gradient_divide_factor(dp_mesh.size())
        fully_shard(block, mesh=dp_mesh)
    fully_shard(model, mesh=dp_mesh)
    return model


def main(model, loader, edp, ep):
    mesh = init_device_mesh("cuda", (edp, ep), mesh_dim_names=("edp", "ep"))
    model = parallelize(model, mesh["edp", "ep"]._flatten("dp"), mesh["edp"])
    optimizer = torch.optim.AdamW(model.parameters())
    for tokens, labels in loader:
        loss = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
