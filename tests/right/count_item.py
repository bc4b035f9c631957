import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dnn
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP




def train(model, loader, opt, args):
    ddp = DDP(model)
    ws = dist.get_world_size()
    for x, y in loader:
        opt.zero_grad()
        n = float(len(y))
        t = torch.tensor(n, device=y.device)
        dist.all_reduce(t)
        loss = F.cross_entropy(ddp(x), y, reduction="mean") * (n * ws / t.item())
        loss.backward()
        opt.step()
