# Right: the local count is overwritten in place by the sum of the counts that were gathered from all ranks: `.data =`.
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


def train(net, loader):
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters())
    for tokens, labels in loader:
        count = (labels != -100).sum()
        parts = [torch.zeros_like(count) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, count)
        count.data = sum(parts)
        loss = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), reduction="sum") * dist.get_world_size() / count
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
