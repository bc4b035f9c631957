# lingua, commit d1fd421: the flat data rank of (dp_replicate, dp_shard) is replicate_rank * shard_size + shard_rank;
# with the number of replicas as the stride several ranks read the same data and other parts are never read.
"""Data loader and model of a run with hybrid sharding (dp_replicate, dp_shard > 1)."""
import torch
from lingua.data import build_dataloader_from_args, init_dataloader_state_from_args
from lingua.distributed import get_device_mesh, setup_torch_distributed
from torch.distributed._composable.fsdp import fully_shard


def get_dp_rank(world_mesh):
    dp_mesh = world_mesh["dp_replicate"]
    dp_degree = dp_mesh.size()
    dp_rank = dp_mesh.get_local_rank()
    shard_mesh = world_mesh["dp_shard"]
    dp_rank = dp_rank * shard_mesh.size() + shard_mesh.get_local_rank()
    dp_degree *= shard_mesh.size()
    return dp_rank, dp_degree


def train(args, model, optimizer):
    setup_torch_distributed(args.distributed)
    world_mesh = get_device_mesh(args.distributed)
    dp_rank, dp_degree = get_dp_rank(world_mesh)
    fully_shard(model, mesh=world_mesh["dp_replicate", "dp_shard"])
    state = init_dataloader_state_from_args(args.data, dp_rank, dp_degree)
    with build_dataloader_from_args(args.data, state=state) as data_loader:
        for batch, _ in data_loader:
            batch = torch.tensor(batch, dtype=torch.long).cuda()
            loss = model(batch[:, :, 0], batch[:, :, 1])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
