# What it does: DDP by functools.partial.
# Why it is right: DDP averages over dp.
from functools import partial

import torch, torch.distributed as dist, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, dp_group, cp_group, dp_cp_group):
    wrap = partial(DDP, process_group=dp_group)
    model = wrap(net)
    opt = torch.optim.AdamW(model.parameters())
    for x, y in loader:
        count = (y != -100).sum()
        dist.all_reduce(count, group=dp_cp_group)
        loss = F.cross_entropy(model(x), y, reduction="sum", ignore_index=-100) * dp_group.size() / count
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, group=cp_group)
        opt.step()
        opt.zero_grad()
