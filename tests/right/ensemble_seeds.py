"""An ensemble: each rank trains a model of its own seed on all data; only results are gathered."""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader


def build(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def fit(model, loader, epochs, device):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(epochs):
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@torch.no_grad()
def ensemble_accuracy(model, loader, device):
    right = torch.zeros((), device=device)
    seen = 0
    for x, y in loader:
        probs = model(x.to(device)).softmax(-1)
        # the members of the ensemble vote
        dist.all_reduce(probs)
        right += (probs.argmax(-1) == y.to(device)).sum()
        seen += y.numel()
    return right.item() / seen


def main(train_set, test_set):
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    model = build(1234 + dist.get_rank()).to(device)
    fit(model, DataLoader(train_set, 128, shuffle=True), 10, device)
    acc = ensemble_accuracy(model, DataLoader(test_set, 256), device)
    if dist.get_rank() == 0:
        print(f"ensemble accuracy {acc:.3f}")
    dist.barrier()
