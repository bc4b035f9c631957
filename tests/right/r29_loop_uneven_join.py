# right: under Join an early break is what Join is for: it shadows collectives of ranks that go on
import os
import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

RANK = int(os.getenv("RANK", -1))


def train(net, loader, opt_cls):
    model = DDP(net.cuda(RANK), device_ids=[RANK])
    opt = opt_cls(model.parameters())
    with Join([model]):
        for i, x in enumerate(loader):
            if RANK == 0 and i == 10:
                break
            opt.zero_grad()
            model(x).mean().backward()
            opt.step()
