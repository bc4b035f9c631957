"""The round is left out where there is one rank, or where the caller ends the job, or the loss is the same on all ranks."""
import torch
import torch.distributed.nn
from torch.nn.parallel import DistributedDataParallel as DDP


def gather_all(x):
    return torch.cat(torch.distributed.nn.all_gather(x))


def train(net, loader, optimizer, device):
    model = DDP(net, device_ids=[device])
    for a, b in loader:
        za, zb = gather_all(model(a)), gather_all(model(b))
        logits = za @ zb.t() / 0.07
        loss = torch.nn.functional.cross_entropy(logits, torch.arange(len(za), device=device))
        if torch.isnan(loss):
            continue
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
