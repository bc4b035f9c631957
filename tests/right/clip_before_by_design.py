"""Federated averaging with bounded updates: each rank bounds its own update before the mean."""
import copy

import torch
import torch.distributed as dist


def local_update(model, loader, lr, steps):
    start = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    it = iter(loader)
    for _ in range(steps):
        x, y = next(it)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return [p.detach() - s for p, s in zip(model.parameters(), start)]


def bound(update, largest):
    norm = torch.stack([u.norm() for u in update]).norm()
    factor = (largest / (norm + 1e-12)).clamp(max=1.0)
    return [u * factor for u in update]


@torch.no_grad()
def aggregate(model, start, update, weight):
    total = torch.tensor(weight, dtype=torch.float32, device=update[0].device)
    dist.all_reduce(total)
    for p, s, u in zip(model.parameters(), start, update):
        u = u * (weight / total)
        dist.all_reduce(u)
        p.copy_(s + u)


def run(model, loader, n_samples, rounds=50):
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    for _ in range(rounds):
        start = [p.detach().clone() for p in model.parameters()]
        client = copy.deepcopy(model)
        update = bound(local_update(client, loader, 0.05, 20), 1.0)
        aggregate(model, start, update, float(n_samples))
