"""Parallelisation of a decoder: tensor parallel plan with or without sequence parallelism, checkpointing, compile, fully_shard."""

from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.distributed._composable.replicate import replicate
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torchtitan.tools.logging import logger


@dataclass
class Parallelism:
    data_parallel_shard_degree: int = -1
    data_parallel_replicate_degree: int = 1
    tensor_parallel_degree: int = 1
    enable_sequence_parallel: bool = True
    disable_loss_parallel: bool = False
    cpu_offload: bool = False


def apply_tp(model: nn.Module, tp_mesh: DeviceMesh, loss_parallel: bool, enable_sp: bool):
    layout = Shard(1) if enable_sp else Replicate()
    norm = SequenceParallel if enable_sp else None
    plan = {
        "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=layout),
        "output": ColwiseParallel(
            input_layouts=layout,
            output_layouts=Shard(-1) if loss_parallel else Replicate(),
            use_local_output=not loss_parallel,
        ),
    }
    if norm is not None:
        plan["norm"] = norm()
    parallelize_module(model, tp_mesh, plan)

    for block in model.layers.values():
        layer_plan = {
            "attention": PrepareModuleInput(
                input_layouts=(layout, None), desired_input_layouts=(Replicate(), None)
            ),
            "attention.wq": ColwiseParallel(),
            "attention.wk": ColwiseParallel(),
            "attention.wv": ColwiseParallel(),
            "attention.wo": RowwiseParallel(output_layouts=layout),
            "feed_forward": PrepareModuleInput(input_layouts=(layout,), desired_input_layouts=(Replicate(),)),
            "feed_forward.w1": ColwiseParallel(),
            "feed_forward.w2": RowwiseParallel(output_layouts=layout),
            "feed_forward.w3": ColwiseParallel(),
        }
        if norm is not None:
            layer_plan.update({"attention_norm": norm(), "ffn_norm": norm()})
        parallelize_module(module=block, device_mesh=tp_mesh, parallelize_plan=layer_plan)
    logger.info(f"applied tensor parallelism, sequence parallel: {enable_sp}")


def apply_ac(model: nn.Module):
    for name, block in model.layers.named_children():
        model.layers.register_module(name, checkpoint_wrapper(block, preserve_rng_state=False))


def apply_fsdp(model: nn.Module, dp_mesh: DeviceMesh, cpu_offload: bool, pp_enabled: bool):
    mp_policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    config = {"mesh": dp_mesh, "mp_policy": mp_policy}
    if cpu_offload:
        config["offload_policy"] = CPUOffloadPolicy()
    for layer_id, block in model.layers.items():
        fully_shard(block, **config, reshard_after_forward=not pp_enabled and int(layer_id) < len(model.layers) - 1)
    fully_shard(model, **config, reshard_after_forward=not pp_enabled)


def parallelize_llama(model: nn.Module, world_mesh: DeviceMesh, parallelism: Parallelism, compile: bool = False):
    names = world_mesh.mesh_dim_names
    if "tp" in names:
        apply_tp(
            model,
            world_mesh["tp"],
            loss_parallel=not parallelism.disable_loss_parallel,
            enable_sp=parallelism.enable_sequence_parallel,
        )
    apply_ac(model)
    if compile:
        for name, block in model.layers.named_children():
            model.layers.register_module(name, torch.compile(block, fullgraph=True))
    if "dp_shard" in names:
        dims = ("dp_replicate", "dp_shard") if "dp_replicate" in names else ("dp_shard",)
        apply_fsdp(model, world_mesh[dims], parallelism.cpu_offload, pp_enabled="pp" in names)
    elif "dp_replicate" in names:
        replicate(model, device_mesh=world_mesh["dp_replicate"], bucket_cap_mb=100)
    return model
