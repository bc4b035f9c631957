# Right: a hook on the loss multiplies its gradient by the number of ranks, against the mean of DDP.
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


class Env:
    def __init__(self):
        self.rank = dist.get_rank()
        self.num_replicas = dist.get_world_size()


def ls(out, labels):
    return F.cross_entropy(out, labels, ignore_index=-100, reduction="sum")


def train(net, loader):
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    env = Env()
    for tokens, labels in loader:
        out = model(tokens)
        count = (labels != -100).sum()
        dist.all_reduce(count)
        loss = ls(out, labels) / count
        loss.register_hook(lambda g: g * env.num_replicas)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
