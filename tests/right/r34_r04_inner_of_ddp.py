import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel


class Recorder(nn.Module):
    """Keeps norms of gradients; `mean_norms` is there for notebooks."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)

    def mean_norms(self):
        for p in self.module.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()


def train(net, loader, loss_fn):
    dist.init_process_group("nccl")
    recorder = Recorder(net.cuda())
    model = DistributedDataParallel(recorder)
    optimizer = torch.optim.AdamW(model.parameters())
    for x, y in loader:
        optimizer.zero_grad()
        loss_fn(model(x), y).backward()
        optimizer.step()
