# Right: the count is that of all ranks, and the number of ranks makes up for the mean of DDP; a float copy is summed and put back by `.data =`.
from torch.nn.parallel import DistributedDataParallel
import torch
import torch.distributed as dist
import torch.nn.functional as F


def train(net, loader, dp_group):
    model = DistributedDataParallel(net, process_group=dp_group)
    optimizer = torch.optim.AdamW(model.parameters())
    for tokens, labels in loader:
        loss = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), reduction="sum")
        count = (labels != -100).sum()
        tmp = count.float().contiguous()
        dist.all_reduce(tmp, group=dp_group)
        count.data = tmp.to(count.dtype)
        loss = loss * dist.get_world_size(dp_group) / count
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
