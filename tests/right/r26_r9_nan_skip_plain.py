# RIGHT: a plain model in one process leaves NaN rounds out
import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def build_model(net):
    return DDP(net)


def search_lr(model, loader, optimizer):
    """The learning-rate finder: one process, before the ranks are launched; `model` is not wrapped."""
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        if torch.isnan(loss):
            continue
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
