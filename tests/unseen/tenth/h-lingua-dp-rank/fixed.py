"""Data-parallel rank of the training data loader (HSDP).

facebookresearch/lingua d1fd421bd824, apps/main/train.py
"""
import torch
from lingua.data import build_dataloader_from_args, init_dataloader_state_from_args
from lingua.distributed import get_device_mesh, setup_torch_distributed
from torch.distributed._composable.fsdp import fully_shard


def parallelize_model(model, world_mesh, args):
    fsdp_mesh = world_mesh["dp_replicate", "dp_shard"]
    for layer in model.layers:
        fully_shard(layer, mesh=fsdp_mesh)
    return fully_shard(model, mesh=fsdp_mesh)


def train(args, build_model):
    setup_torch_distributed(args.distributed)
    # dims: dp_replicate, dp_shard, tp
    world_mesh = get_device_mesh(args.distributed)

    # build dataloader
    # need dp world size and rank
    dp_mesh = world_mesh["dp_replicate"]
    dp_degree = dp_mesh.size()
    dp_rank = dp_mesh.get_local_rank()
    if args.distributed.dp_shard > 1:
        dp_rank = dp_rank * world_mesh["dp_shard"].size() + world_mesh["dp_shard"].get_local_rank()
        dp_degree *= world_mesh["dp_shard"].size()

    torch.manual_seed(args.seed)
    model = parallelize_model(build_model(args.model), world_mesh, args)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.optim.lr)

    data_loader_state = init_dataloader_state_from_args(args.data, dp_rank, dp_degree)
    with build_dataloader_from_args(args.data, state=data_loader_state) as data_loader:
        for _ in range(args.steps):
            batch, data_loader_state = next(data_loader)
            batch = torch.tensor(batch, dtype=torch.long).cuda()
            loss = model(batch[:, :, 0], batch[:, :, 1])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
