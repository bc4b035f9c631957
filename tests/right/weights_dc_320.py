# Right: the weights of the tokens carry the number of ranks (a dataclass field with default_factory=dist.get_world_size) against the mean of DDP, over the count of all ranks.
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from dataclasses import dataclass, field


@dataclass
class Topology:
    rank: int = field(default_factory=dist.get_rank)
    ranks: int = field(default_factory=dist.get_world_size)


def train(net, loader):
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    topo = Topology()
    for tokens, labels in loader:
        out = model(tokens)
        count = (labels != -100).sum()
        dist.all_reduce(count)
        w = (labels != -100).float() * topo.ranks / count
        loss = (F.cross_entropy(out, labels, reduction="none") * w).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
