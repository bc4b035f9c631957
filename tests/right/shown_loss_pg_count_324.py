# Right: the loss is over the count of all ranks times the ranks; the sum of it over ranks divided by them is the mean.
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


def step(model: DistributedDataParallel, optimizer, tokens, labels):
    count = (labels != -100).sum()
    dist.group.WORLD.allreduce([count]).wait()
    loss = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), reduction="sum")
    loss = loss * (dist.get_world_size() / count)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    shown = loss.detach().clone()
    dist.all_reduce(shown)
    return shown.item() / dist.get_world_size()
