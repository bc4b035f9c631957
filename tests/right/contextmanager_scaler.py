"""A context manager that turns off the wrapper's sum and, when it ends, averages in one flat buffer."""
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


@contextmanager
def one_flat_mean(model: DDP):
    with model.no_sync():
        yield
    params = [p for p in model.parameters() if p.grad is not None]
    flat = torch.cat([p.grad.flatten() for p in params])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for p, g in zip(params, flat.split([p.numel() for p in params])):
        p.grad.copy_(g.view_as(p))


def train(net, loader):
    model = DDP(net)
    optimizer = torch.optim.AdamW(model.parameters())
    for batches in loader:
        with one_flat_mean(model):
            for x, y in batches:
                loss = torch.nn.functional.cross_entropy(model(x), y) / len(batches)
                loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
