import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dnn
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def gather_own(z):
    outs = [torch.zeros_like(z) for _ in range(dist.get_world_size())]
    dist.all_gather(outs, z)
    outs[dist.get_rank()] = z
    return torch.cat(outs)


def train(model, loader, opt, args):
    ddp = DDP(model)
    ws = dist.get_world_size()
    for x, y in loader:
        opt.zero_grad()
        lp = ddp(x) - y
        z = gather_own(lp)
        loss = -F.logsigmoid(0.1 * (z - z.mean().detach())).mean() * ws
        loss.backward()
        opt.step()
