"""FSDP2 training of a Hugging Face model with experimental context parallelism."""
import torch
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.experimental import context_parallel


def build_meshes(dp, cp):
    world = init_device_mesh("cuda", (dp, cp), mesh_dim_names=("dp", "cp"))
    world["dp", "cp"]._flatten("dp_cp")
    return world


def shard_model(model, world):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    kwargs = {"mesh": world["dp"], "mp_policy": policy}  # BUG
    for layer in model.model.layers:
        fully_shard(layer, **kwargs)
    fully_shard(model, **kwargs)
    return model


def train_step(model, batch, world, optimizer):
    # batch is read by dp rank; every cp rank of it starts from the same full, packed sequences
    ids, labels, pos = batch["input_ids"], batch["shifted_labels"], batch["position_ids"]
    buffers = [ids, labels, pos]
    with context_parallel(
        world["cp"], buffers=buffers, buffer_seq_dims=[1, 1, 1], no_restore_buffers=set(buffers)
    ):
        logits = model(input_ids=ids, position_ids=pos, use_cache=False).logits
        loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
