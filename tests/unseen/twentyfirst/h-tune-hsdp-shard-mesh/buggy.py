"""Shard a model over a replicate x shard mesh."""
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DistributedSampler


def setup_model(model, dp_replicate, dp_shard):
    mesh = init_device_mesh(
        "cuda", (dp_replicate, dp_shard), mesh_dim_names=("dp_replicate", "dp_shard")
    )
    dp_mesh = mesh["dp_shard"]  # BUG: gradients are never averaged over dp_replicate
    for layer in model.layers:
        fully_shard(layer, mesh=dp_mesh, reshard_after_forward=True)
    fully_shard(model, mesh=dp_mesh)
    return model


def setup_data(dataset):
    # every rank reads its own samples
    return DistributedSampler(dataset, num_replicas=dist.get_world_size(), rank=dist.get_rank())
