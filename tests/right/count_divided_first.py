import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def train(model, loader, opt):
    ddp = DDP(model)
    for x, y in loader:
        opt.zero_grad()
        loss = F.cross_entropy(ddp(x), y)
        n = len(x)
        t = torch.tensor(float(n), device=y.device)
        dist.all_reduce(t)
        t /= dist.get_world_size()
        loss = loss * n / t
        loss.backward()
        opt.step()
