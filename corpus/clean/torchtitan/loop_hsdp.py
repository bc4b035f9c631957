"""Hybrid sharding with tensor parallelism: a mesh of three dims, batches by data rank, a loss that the gradients average."""

import torch
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.utils.data import DataLoader, DistributedSampler


def parallelize(model, mesh):
    tp = mesh["tp"]
    parallelize_module(
        model,
        tp,
        {
            "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "norm": SequenceParallel(),
            "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
        },
    )
    for block in model.layers:
        parallelize_module(
            block,
            tp,
            {
                "attention_norm": SequenceParallel(),
                "attention": PrepareModuleInput(input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)),
                "attention.wq": ColwiseParallel(),
                "attention.wk": ColwiseParallel(),
                "attention.wv": ColwiseParallel(),
                "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
                "ffn_norm": SequenceParallel(),
                "feed_forward": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
                "feed_forward.w1": ColwiseParallel(),
                "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
            },
        )
        fully_shard(block, mesh=mesh["replicate", "shard"])
    return fully_shard(model, mesh=mesh["replicate", "shard"])


def main(model, dataset, args):
    mesh = init_device_mesh("cuda", (args.replicate, args.shard, args.tp), mesh_dim_names=("replicate", "shard", "tp"))
    model = parallelize(model, mesh)
    dp = mesh["replicate", "shard"]._flatten("dp")
    sampler = DistributedSampler(dataset, num_replicas=dp.size(), rank=dp.get_local_rank(), shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, foreach=True)
    for tokens, labels in DataLoader(dataset, batch_size=args.batch, sampler=sampler):
        with loss_parallel():
            loss = nn.functional.cross_entropy(model(tokens.cuda()).flatten(0, 1), labels.cuda().flatten())
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
