# right: under model.join() a rank may end early: it shadows collectives of ranks that go on
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

RANK = int(os.getenv("RANK", -1))


def train(net, loader, opt):
    model = DistributedDataParallel(net)
    with model.join():
        for step, x in enumerate(loader):
            opt.zero_grad()
            model(x).mean().backward()
            opt.step()
            if RANK in {-1, 0}:
                print(step)
                if step >= 100:
                    break
