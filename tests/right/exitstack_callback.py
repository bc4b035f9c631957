"""The mean of the gradients is a callback of an ExitStack: it runs when the block is left."""
from contextlib import ExitStack
from functools import partial

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def average(model):
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)


def train(model, dataset):
    loader = DataLoader(dataset, 8, sampler=DistributedSampler(dataset))
    optimizer = torch.optim.AdamW(model.parameters())
    at_end = [partial(average, model), partial(torch.nn.utils.clip_grad_norm_, model.parameters(), 1.0)]
    for x, y in loader:
        optimizer.zero_grad()
        with ExitStack() as stack:
            for fn in reversed(at_end):
                stack.callback(fn)
            torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def finetune(model, dataset):
    loader = DataLoader(dataset, 8, sampler=DistributedSampler(dataset))
    optimizer = torch.optim.AdamW(model.parameters())
    for x, y in loader:
        optimizer.zero_grad()
        with ExitStack() as stack:
            stack.callback(average, model)
            torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def main(net, dataset):
    dist.init_process_group("gloo")
    for p in net.parameters():
        dist.broadcast(p.data, 0)
    train(net, dataset)
