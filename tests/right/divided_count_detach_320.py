# Right: the count of all ranks divided by their number makes up for the mean of DDP; the division is in place, through `count.detach()`.
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


def train(net, loader, dp_group):
    model = DistributedDataParallel(net, process_group=dp_group)
    optimizer = torch.optim.AdamW(model.parameters())
    for tokens, labels in loader:
        count = (labels != -100).sum().float()
        dist.all_reduce(count, group=dp_group)
        count.detach().div_(dp_group.size())
        loss = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), reduction="sum") / count
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
