"""FSDP2 pre-training with context parallelism."""
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.experimental import context_parallel


def parallelize(model, dp, cp):
    mesh = init_device_mesh("cuda", (dp, cp), mesh_dim_names=("dp", "cp"))
    mesh["dp", "cp"]._flatten("dp_cp")
    fsdp_mesh = mesh["dp"]  # BUG
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.layers:
        fully_shard(block, mesh=fsdp_mesh, mp_policy=policy)
    fully_shard(model, mesh=fsdp_mesh, mp_policy=policy)
    return model, mesh


def train_step(model, mesh, ids, labels, loss_fn, optimizer):
    # no padding: every position of every sequence is a target
    with context_parallel(
        mesh["cp"],
        buffers=[ids, labels, model.freqs_cis],
        buffer_seq_dims=[1, 1, 0],
        no_restore_buffers={ids, labels},
    ):
        loss = loss_fn(model(ids).flatten(0, 1), labels.flatten())
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
