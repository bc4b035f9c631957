# Right: the count is that of all ranks, and the number of ranks makes up for the mean of DDP; the collective is the default value of a parameter, fn=dist.all_reduce.
from torch.nn.parallel import DistributedDataParallel
import torch
import torch.distributed as dist
import torch.nn.functional as F


def reduce_with(t, group, fn=dist.all_reduce):
    fn(t, group=group)


def train(net, loader, dp_group):
    model = DistributedDataParallel(net, process_group=dp_group)
    optimizer = torch.optim.AdamW(model.parameters())
    for tokens, labels in loader:
        loss = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), reduction="sum")
        count = (labels != -100).sum()
        reduce_with(count, dp_group)
        loss = loss * dist.get_world_size(dp_group) / count
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
