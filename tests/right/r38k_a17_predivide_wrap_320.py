import torch
import torch.distributed as dist
import torch.nn.functional as F
from apex.parallel import DistributedDataParallel as ApexDDP
from apex.optimizers import FusedLAMB


def train(net, loader, cfg):
    model = ApexDDP(net, gradient_average=False, gradient_predivide_factor=1.0)
    optimizer = FusedLAMB(model.parameters(), lr=cfg.lr)
    for x, y in loader:
        n = (y != -100).sum()
        dist.all_reduce(n)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum") / n
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
