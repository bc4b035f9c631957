"""Data loading for a model on a (dp, tp) mesh.

Source: examples of 2-D parallelism with DTensor and FSDP2 (from memory). DistributedSampler cuts
the data over all ranks of the world by default. The tensor ranks of a replica then compute on
different samples, although their shards belong to one model and expect the same input.
"""
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.utils.data import DataLoader, DistributedSampler


def parallelize(model, mesh):
    plan = {
        "attention.wq": ColwiseParallel(),
        "attention.wk": ColwiseParallel(),
        "attention.wv": ColwiseParallel(),
        "attention.wo": RowwiseParallel(),
        "feed_forward.w1": ColwiseParallel(),
        "feed_forward.w2": RowwiseParallel(),
        "feed_forward.w3": ColwiseParallel(),
    }
    for block in model.layers:
        block.attention.n_heads //= mesh["tp"].size()
        block.attention.n_kv_heads //= mesh["tp"].size()
        parallelize_module(block, mesh["tp"], plan)
        fully_shard(block, mesh=mesh["dp"])
    return fully_shard(model, mesh=mesh["dp"])


def make_loader(dataset, mesh, batch_size, seed):
    sampler = DistributedSampler(dataset, shuffle=True, seed=seed, drop_last=True)  # BUG
    return DataLoader(dataset, batch_size=batch_size, sampler=sampler, drop_last=True)


def train(model, dataset, loss_fn, tp_size, world_size, batch_size, epochs, seed=0):
    mesh = init_device_mesh("cuda", (world_size // tp_size, tp_size), mesh_dim_names=("dp", "tp"))
    model = parallelize(model, mesh)
    loader = make_loader(dataset, mesh, batch_size, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        for tokens, labels in loader:
            optimizer.zero_grad()
            logits = model(tokens.cuda())
            loss_fn(logits.flatten(0, 1), labels.cuda().flatten()).backward()
            optimizer.step()
