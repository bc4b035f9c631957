"""The class has no forward, and the loop sums the gradients by hand."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Table(nn.Module):
    def __init__(self, n, dim):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(n, dim))


def fit(model, loader, rank):
    table = DDP(Table(16, 768).to(rank))
    opt = torch.optim.Adam(table.parameters(), lr=1e-3)
    for batch in loader:
        loss = model(batch, table.module.table).loss
        loss.backward()
        for p in table.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        opt.step()
        opt.zero_grad()
