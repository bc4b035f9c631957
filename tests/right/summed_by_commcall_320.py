# Right: the count is that of all ranks, and the number of ranks makes up for the mean of DDP; summed in place by an object of a class of this file with `__call__`.
from torch.nn.parallel import DistributedDataParallel
import torch
import torch.distributed as dist
import torch.nn.functional as F


class Summer:
    def __init__(self, group):
        self.group = group

    def __call__(self, t):
        dist.all_reduce(t, group=self.group)


def train(net, loader, dp_group):
    model = DistributedDataParallel(net, process_group=dp_group)
    optimizer = torch.optim.AdamW(model.parameters())
    comm = Summer(dp_group)
    for tokens, labels in loader:
        loss = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), reduction="sum")
        count = (labels != -100).sum()
        comm(count)
        loss = loss * dist.get_world_size(dp_group) / count
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
