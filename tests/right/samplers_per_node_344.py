# Right: each node has its own dataset (shards_by_node[node]); num_replicas=LOCAL_WORLD_SIZE, rank=LOCAL_RANK, so one order is needed only
# within a node, and seed + node is equal there (node = rank // local_size).
import os
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def build_loader(shards_by_node, make_dataset, cfg):
    """Each node has its own shard of the data on local disk; the ranks of a node share it."""
    local_rank, local_size = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    node = dist.get_rank() // local_size
    dataset = make_dataset(shards_by_node[node])
    sampler = DistributedSampler(dataset, num_replicas=local_size, rank=local_rank, shuffle=True, seed=cfg.seed + node, drop_last=True)
    return DataLoader(dataset, batch_size=cfg.bs, sampler=sampler, drop_last=True), sampler


def train(model, shards, make_dataset, cfg):
    model = torch.nn.parallel.DistributedDataParallel(model)
    loader, sampler = build_loader(shards, make_dataset, cfg)
    opt = torch.optim.AdamW(model.parameters(), cfg.lr)
    for epoch in range(cfg.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            opt.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            opt.step()
