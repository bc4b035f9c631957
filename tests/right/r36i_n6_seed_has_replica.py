# RIGHT: the seed given has the replica's number in it already.
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def set_seed(mesh, dims, seed):
    offset = 0
    for name in dims:
        offset = offset * mesh[name].size() + mesh[name].get_local_rank()
    torch.manual_seed(seed + offset)


def train(model, loader, opt, replicate, shard, seed):
    mesh = init_device_mesh("cuda", (replicate, shard), mesh_dim_names=("dp_replicate", "dp_shard"))
    fully_shard(model, mesh=mesh)
    seed = seed + 10_000 * mesh["dp_replicate"].get_local_rank()
    set_seed(mesh, ["dp_shard"], seed)
    for x in loader:
        noise = torch.randn_like(x)
        (model(x + noise) - noise).pow(2).mean().backward()
        opt.step()
        opt.zero_grad()
