"""The vocabulary is split over tensor-parallel ranks, the batch over data-parallel ones: the loss is equal on the former."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import loss_parallel


def main(model, loader, dp, tp):
    mesh = init_device_mesh("cuda", (dp, tp), mesh_dim_names=("dp", "tp"))
    for block in model.layers:
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    for tokens, labels in loader:
        count = (labels != -100).sum()
        dist.all_reduce(count, group=mesh["dp"].get_group())
        with loss_parallel():
            loss = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), reduction="sum")
            loss = loss / count * mesh["dp"].size()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
