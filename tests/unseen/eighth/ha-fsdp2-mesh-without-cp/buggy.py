"""Apply FSDP2 to a transformer trained with data and context parallelism."""
import torch
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.experimental import context_parallel


def build_mesh(dp_shard, cp):
    mesh = init_device_mesh("cuda", (dp_shard, cp), mesh_dim_names=("dp_shard", "cp"))
    mesh["dp_shard", "cp"]._flatten("dp_shard_cp")
    return mesh


def apply_fsdp(model, world_mesh):
    mp = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    dp_mesh = world_mesh["dp_shard"]  # BUG
    for block in model.layers.values():
        fully_shard(block, mesh=dp_mesh, mp_policy=mp)
    fully_shard(model, mesh=dp_mesh, mp_policy=mp)
    return model


def train_step(model, optimizer, tokens, labels, world_mesh):
    optimizer.zero_grad()
    with context_parallel(
        world_mesh["cp"],
        buffers=[tokens, labels, model.freqs_cis],
        buffer_seq_dims=[1, 1, 0],
        no_restore_buffers={tokens, labels},
    ):
        logits = model(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1))
        loss.backward()
    optimizer.step()
    return loss.detach()
