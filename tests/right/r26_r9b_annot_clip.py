# RIGHT: the annotation names a plain class of the file, which nobody wraps: a probe of each rank
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build_model(net):
    return FSDP(net)


class Probe(torch.nn.Linear):
    pass


def fit_probe(model: Probe, loader, optimizer):
    for x in loader:
        model(x).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
