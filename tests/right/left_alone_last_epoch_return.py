"""The rank leaves in the last round, after the last collective."""
import torch
import torch.distributed as dist


def run(model, loader, optimizer, epochs):
    rank = dist.get_rank()
    for epoch in range(epochs):
        stats = torch.zeros(2, device="cuda")
        for x, y in loader:
            loss = model(x, y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            stats += torch.stack([loss.detach(), torch.ones_like(loss)])
        dist.all_reduce(stats)
        if epoch == epochs - 1 and rank == 0:
            return (stats[0] / stats[1]).item()
    return None
