"""The round is left out where there is one rank, or where the caller ends the job, or the loss is the same on all ranks."""
import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, optimizer, mode):
    if mode == "ddp":
        net = DDP(net)
    for x in loader:
        loss = net(x).mean()
        if mode != "ddp" and torch.isnan(loss):
            print("nan")
            continue
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
