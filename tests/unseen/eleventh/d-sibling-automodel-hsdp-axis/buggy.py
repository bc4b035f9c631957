"""Data-parallel axes handed to FSDP2, with and without replicas (HSDP)."""
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

# spmd: mesh world = dp_replicate, dp_shard, cp, tp
# spmd: alias dp_shard_cp = dp_shard * cp


def create_device_mesh(dp_replicate, dp_shard, cp, tp):
    names = ("dp_replicate", "dp_shard", "cp", "tp")
    mesh = init_device_mesh("cuda", (dp_replicate, dp_shard, cp, tp), mesh_dim_names=names)
    mesh[("dp_shard", "cp")]._flatten(mesh_dim_name="dp_shard_cp")
    return mesh


def parallelize_model(model, device_mesh):
    fsdp_mesh = device_mesh["dp_shard_cp"]
    for block in model.layers:
        fully_shard(block, mesh=fsdp_mesh)  # BUG: replicas never exchange gradients
    fully_shard(model, mesh=fsdp_mesh)


# spmd: input_ids: {dp_replicate: V, dp_shard: V, cp: V, tp: R}, labels: {dp_replicate: V, dp_shard: V, cp: V, tp: R}
def train_step(model, input_ids, labels, loss_fn, optimizer):
    loss_fn(model(input_ids), labels).backward()
    optimizer.step()
