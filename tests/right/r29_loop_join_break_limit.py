# right: under Join an early break is what Join is for: it shadows collectives of ranks that go on
import os
import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

RANK = int(os.getenv("RANK", -1))


def train(net, loader, opt, budget):
    """The first RANK also serves requests, and does fewer steps: Join shadows its collectives."""
    model = DistributedDataParallel(net)
    with Join([model], divide_by_initial_world_size=False):
        for step, x in enumerate(loader):
            if RANK == 0:
                if step >= budget:
                    break
            opt.zero_grad()
            model(x).mean().backward()
            opt.step()
