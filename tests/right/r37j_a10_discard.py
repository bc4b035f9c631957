import contextlib
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, k, local_rank, opt):
    model = DDP(net.cuda(), device_ids=[local_rank])
    n = len(loader)
    for i, (x, y) in enumerate(loader):
        sync = (i + 1) % k == 0
        with contextlib.nullcontext() if sync else model.no_sync():
            loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
            (loss / k).backward()
        if sync or i + 1 == n:
            if not sync:
                # an incomplete window is thrown away, not stepped
                opt.zero_grad()
                continue
            opt.step()
            opt.zero_grad()
