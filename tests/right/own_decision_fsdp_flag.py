"""The round is left out where there is one rank, or where the caller ends the job, or the loss is the same on all ranks."""
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def train(net, loader, optimizer, args):
    if args.fsdp:
        net = FSDP(net)
    for x in loader:
        loss = net(x).mean()
        if not args.fsdp and loss.item() > args.max_loss:
            continue
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
