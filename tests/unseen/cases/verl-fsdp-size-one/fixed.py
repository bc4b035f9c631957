"""Device mesh and sharding strategy of the actor."""
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy


def create_device_mesh(world_size, fsdp_size):
    if fsdp_size < 0 or fsdp_size >= world_size:
        return init_device_mesh("cuda", mesh_shape=(world_size,), mesh_dim_names=["fsdp"])
    return init_device_mesh(
        "cuda", mesh_shape=(world_size // fsdp_size, fsdp_size), mesh_dim_names=["ddp", "fsdp"]
    )


def build_actor(module, world_size, fsdp_size=1):
    mesh = create_device_mesh(world_size, fsdp_size)
    return FSDP(
        module,
        device_mesh=mesh,
        sharding_strategy=ShardingStrategy.FULL_SHARD if mesh.ndim == 1 else ShardingStrategy.HYBRID_SHARD,
        use_orig_params=True,
    )


def update_policy(actor, micro_batches, loss_fn, optimizer):
    for mb in micro_batches:
        loss_fn(actor(mb["input_ids"]), mb).backward()
    optimizer.step()
