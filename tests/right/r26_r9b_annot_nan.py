# RIGHT: annotation with a plain class, NaN rounds left out in a rank's own probe
import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def build_model(net):
    return DDP(net)


class Probe(torch.nn.Linear):
    pass


def fit_probe(model: Probe, loader, optimizer):
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        if torch.isnan(loss):
            continue
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
