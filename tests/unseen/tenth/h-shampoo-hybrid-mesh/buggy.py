"""Hybrid-sharded CIFAR-10 example of distributed Shampoo.

facebookresearch/optimizers 35bd72b0e305, distributed_shampoo/examples/hybrid_shard_cifar10_example.py
"""
import argparse
import os

import torch
import torch.distributed as dist
from distributed_shampoo import AdamGraftingConfig, DistributedShampoo, HybridShardShampooConfig
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

LOCAL_RANK = int(os.environ["LOCAL_RANK"])
WORLD_RANK = int(os.environ["RANK"])
WORLD_SIZE = int(os.environ["WORLD_SIZE"])


def create_model_and_optimizer(
    args: argparse.Namespace, model: nn.Module, device_mesh: DeviceMesh
) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = fully_shard(model, mesh=device_mesh)
    optimizer = DistributedShampoo(
        model.parameters(),
        lr=args.lr,
        grafting_config=AdamGraftingConfig(beta2=args.grafting_beta2, epsilon=args.grafting_epsilon),
        distributed_config=HybridShardShampooConfig(device_mesh=device_mesh),
    )
    return model, optimizer


def main(args: argparse.Namespace, model: nn.Module) -> None:
    dist.init_process_group(args.backend, rank=WORLD_RANK, world_size=WORLD_SIZE)
    torch.cuda.set_device(LOCAL_RANK)

    # initialize device_mesh for hybrid shard data parallel
    device_mesh: DeviceMesh = init_device_mesh(
        "cuda",
        (args.dp_replicate_degree, WORLD_RANK // args.dp_replicate_degree),  # BUG
        mesh_dim_names=("dp_replicate", "dp_shard"),
    )

    model, optimizer = create_model_and_optimizer(args, model.cuda(), device_mesh)
