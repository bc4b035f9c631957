# Right: the count is that of all ranks, and the number of ranks makes up for the mean of DDP; summed in place by a method of an Enum member of this file.
from torch.nn.parallel import DistributedDataParallel
import enum
import torch
import torch.distributed as dist
import torch.nn.functional as F


class Collective(enum.Enum):
    SUM = "sum"
    MAX = "max"

    def run(self, t, group):
        dist.all_reduce(t, op=dist.ReduceOp.SUM if self is Collective.SUM else dist.ReduceOp.MAX, group=group)


def train(net, loader, dp_group):
    model = DistributedDataParallel(net, process_group=dp_group)
    optimizer = torch.optim.AdamW(model.parameters())
    for tokens, labels in loader:
        loss = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), reduction="sum")
        count = (labels != -100).sum()
        Collective.SUM.run(count, dp_group)
        loss = loss * dist.get_world_size(dp_group) / count
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
