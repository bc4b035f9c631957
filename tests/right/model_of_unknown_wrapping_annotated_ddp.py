# What it does: the same; the parameter is annotated as DistributedDataParallel.
# Why it is right: as above.
import torch, torch.distributed as dist, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


def train(model: DistributedDataParallel, loader, opt, dp_group, cp_group, dp_cp_group):
    for x, y in loader:
        count = (y != -100).sum()
        dist.all_reduce(count, group=dp_cp_group)
        loss = F.cross_entropy(model(x), y, reduction="sum", ignore_index=-100) * dp_group.size() / count
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, group=cp_group)
        opt.step()
        opt.zero_grad()
