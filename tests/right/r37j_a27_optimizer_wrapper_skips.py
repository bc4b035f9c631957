import contextlib
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def train(model, loader, opt, sched, loss_fn, k, local_rank):
    """The scheduler steps at the end of the epoch as well; the optimizer does not."""
    model = DDP(model.cuda(), device_ids=[local_rank])
    n = len(loader)
    for i, (x, y) in enumerate(loader):
        sync = (i + 1) % k == 0
        with contextlib.nullcontext() if sync else model.no_sync():
            loss_fn(model(x.cuda()), y.cuda()).div(k).backward()
        if sync or i + 1 == n:
            if sync:
                opt.step()
            opt.zero_grad()
            sched.step()
