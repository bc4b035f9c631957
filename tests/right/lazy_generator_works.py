"""Handles come from a generator that is made before the backward pass and consumed after it."""
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def reductions(params):
    """Lazy: nothing is started before the first `next`."""
    for p in params:
        if p.grad is not None:
            yield dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, async_op=True)


def train(model, dataset):
    loader = DataLoader(dataset, 8, sampler=DistributedSampler(dataset))
    optimizer = torch.optim.AdamW(model.parameters())
    for x, y in loader:
        optimizer.zero_grad()
        works = reductions(model.parameters())
        torch.nn.functional.cross_entropy(model(x), y).backward()
        for work in list(works):
            work.wait()
        optimizer.step()


def main(net, dataset):
    dist.init_process_group("nccl")
    for p in net.parameters():
        dist.broadcast(p.data, 0)
    train(net, dataset)
