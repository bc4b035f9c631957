import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import parallelize_module
from torch.utils.data import DataLoader, DistributedSampler

from titan_like import ExpertParallel


def main(model, data):
    mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "ep"))
    for block in model.layers:
        parallelize_module(block.moe.experts, mesh["ep"], ExpertParallel())
        fully_shard(block.moe.experts, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh._flatten("world"))
    # the ranks of ep are data-parallel ranks: each has its own tokens
    sampler = DistributedSampler(data, num_replicas=dist.get_world_size(), rank=dist.get_rank())
    for x in DataLoader(data, sampler=sampler):
        model(x)
