"""Shard the student and teacher models with FSDP2.

facebookresearch/dinov3 d13af7d3e3aa, dinov3/fsdp/ac_compile_parallelize.py
"""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method

DTYPE_MAP = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


def ac_compile_parallelize(trained_model, cfg, trained_model_process_group=None):
    mp_policy = MixedPrecisionPolicy(
        param_dtype=DTYPE_MAP[cfg.compute_precision.param_dtype],
        reduce_dtype=DTYPE_MAP[cfg.compute_precision.reduce_dtype],
    )
    if trained_model_process_group is None:
        world_mesh = init_device_mesh("cuda", mesh_shape=(dist.get_world_size(),), mesh_dim_names=("dp",))
    else:
        world_mesh = DeviceMesh.from_group(trained_model_process_group, "cuda")
    fsdp_config = {"mesh": world_mesh, "mp_policy": mp_policy}

    m = trained_model
    for k in m.keys():
        if k != "backbone":
            m[k] = fully_shard(m[k], **fsdp_config, reshard_after_forward=True)
            m[k].set_reduce_scatter_divide_factor(1)  # BUG
            continue
        # Backbone - FSDP every block
        blocks = m[k].blocks
        assert isinstance(blocks, nn.ModuleList)
        for block_id, block in enumerate(blocks):
            blocks[block_id] = fully_shard(block, **fsdp_config, reshard_after_forward=True)
        for prev_block, next_block in zip(blocks, blocks[1:]):
            prev_block.set_modules_to_forward_prefetch([next_block])
            next_block.set_modules_to_backward_prefetch([prev_block])
        fully_shard(m.backbone, **fsdp_config, reshard_after_forward=True)
        register_fsdp_forward_method(m.backbone, "get_intermediate_layers")
    m.to_empty(device="cuda")


def train_step(model, optimizer, images, loss_fn):
    # every rank has its own images; loss_fn averages over them
    loss = loss_fn(model["dino_head"](model["backbone"](images)))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
