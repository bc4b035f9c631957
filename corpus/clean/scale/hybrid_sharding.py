"""Hybrid sharding: the wrapper averages over replicas and shards together; tokens are counted over both."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main(model, loader, replicate, shard):
    mesh = init_device_mesh("cuda", (replicate, shard), mesh_dim_names=("dp_replicate", "dp_shard"))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    dp_mesh = mesh["dp_replicate", "dp_shard"]._flatten("dp")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for tokens, labels in loader:
        loss = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
        count = labels.ne(-100).sum()
        dist.all_reduce(count, op=dist.ReduceOp.SUM, group=dp_mesh.get_group())
        (loss * dp_mesh.size() / count).backward()
        optimizer.step()
        optimizer.zero_grad()
