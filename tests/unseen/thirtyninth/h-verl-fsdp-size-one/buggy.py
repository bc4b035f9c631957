"""Build the FSDP-wrapped actor."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy


def create_device_mesh(world_size, fsdp_size):
    if fsdp_size < 0 or fsdp_size >= world_size:  # BUG
        return init_device_mesh("cuda", mesh_shape=(world_size,), mesh_dim_names=["fsdp"])
    return init_device_mesh(
        "cuda", mesh_shape=(world_size // fsdp_size, fsdp_size), mesh_dim_names=["ddp", "fsdp"]
    )


def get_sharding_strategy(device_mesh):
    if device_mesh.ndim == 1:
        return ShardingStrategy.FULL_SHARD
    if device_mesh.ndim == 2:
        return ShardingStrategy.HYBRID_SHARD
    raise NotImplementedError(f"device mesh with {device_mesh.ndim} dims")


def build_actor(module, config, wrap_policy):
    """config.fsdp_size is the number of ranks that share one copy of the parameters."""
    world_size = dist.get_world_size()
    device_mesh = create_device_mesh(world_size, config.fsdp_size)
    mixed_precision = MixedPrecision(
        param_dtype=torch.bfloat16, reduce_dtype=torch.float32, buffer_dtype=torch.float32
    )
    return FSDP(
        module,
        device_id=torch.cuda.current_device(),
        auto_wrap_policy=wrap_policy,
        sharding_strategy=get_sharding_strategy(device_mesh),
        mixed_precision=mixed_precision,
        device_mesh=device_mesh,
        sync_module_states=True,
        use_orig_params=config.use_orig_params,
    )


def update_policy(actor, optimizer, micro_batches, loss_fn):
    optimizer.zero_grad()
    for mb in micro_batches:
        loss = loss_fn(actor(mb["input_ids"]).logits, mb) / len(micro_batches)
        loss.backward()
    grad_norm = actor.clip_grad_norm_(max_norm=1.0)
    optimizer.step()
    return grad_norm
