"""the block runs in an engine under no_grad."""
import torch
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Replicate


@torch.no_grad()
def run(x, layers, mesh):
    for up, down in layers:
        x = column_then_row(x, up, down, mesh)
    return x


def column_then_row(x, up, down, mesh):
    x = x.redistribute(placements=[Replicate()]).to_local()
    h = F.silu(x @ up.to_local()) @ down.to_local()
    return DTensor.from_local(h, mesh, [Partial()])
