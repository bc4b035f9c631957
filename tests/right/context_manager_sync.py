"""A context manager sums the gradients when its block ends."""
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


@contextmanager
def averaged_gradients(module, group=None):
    try:
        yield
    finally:
        n = dist.get_world_size(group)
        for p in module.parameters():
            if p.grad is None:
                continue
            p.grad.div_(n)
            dist.all_reduce(p.grad, group=group)


class Averaged:
    """The same as a class, for a list of modules."""

    def __init__(self, *modules):
        self.modules = modules

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for m in self.modules:
            for p in m.parameters():
                if p.grad is not None:
                    dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)


def train(encoder, decoder, dataset):
    loader = DataLoader(dataset, 8, sampler=DistributedSampler(dataset))
    params = [*encoder.parameters(), *decoder.parameters()]
    optimizer = torch.optim.AdamW(params)
    for i, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        with Averaged(encoder, decoder):
            torch.nn.functional.mse_loss(decoder(encoder(x)), y).backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()


def finetune(model, dataset):
    loader = DataLoader(dataset, 8, sampler=DistributedSampler(dataset))
    optimizer = torch.optim.AdamW(model.parameters())
    for x, y in loader:
        optimizer.zero_grad()
        with averaged_gradients(model):
            torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
