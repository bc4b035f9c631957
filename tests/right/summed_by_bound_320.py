# Right: the count is that of all ranks, and the number of ranks makes up for the mean of DDP; the collective is bound by a conditional expression to a local name.
from torch.nn.parallel import DistributedDataParallel
import torch
import torch.distributed as dist
import torch.nn.functional as F


def train(net, loader, dp_group):
    model = DistributedDataParallel(net, process_group=dp_group)
    optimizer = torch.optim.AdamW(model.parameters())
    red = dist.all_reduce if dist.is_initialized() else (lambda t, group=None: t)
    for tokens, labels in loader:
        loss = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), reduction="sum")
        count = (labels != -100).sum()
        red(count, group=dp_group)
        loss = loss * dist.get_world_size(dp_group) / count
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
