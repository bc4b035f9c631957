"""Experts of a library that divides the gradients of their weights by the number of expert ranks itself (llm-foundry, megablocks)."""
import torch
import torch.distributed as dist
import megablocks
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP


def train(args, x, rank, moe_world_size):
    mesh = init_device_mesh(
        "cuda",
        (dist.get_world_size() // moe_world_size, moe_world_size),
        mesh_dim_names=("weight_parallel", "expert_parallel"),
    )
    moe = megablocks.layers.dmoe.dMoE(args)
    moe.router = DDP(moe.router, device_ids=[rank])
    dp_pg = mesh["weight_parallel"].get_group(0)
    moe.experts = DDP(moe.experts, process_group=dp_pg)
    optimizer = torch.optim.SGD(moe.parameters(), lr=0.1)
    moe(x).sum().backward()
    optimizer.step()
