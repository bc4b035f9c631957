import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, opt, accum):
    scale = torch.tensor(1.0 / accum)
    model = DDP(net)
    for i, x in enumerate(loader):
        loss = model(x).mean()
        loss.backward(gradient=scale)
        if (i + 1) % accum == 0:
            opt.step()
            opt.zero_grad()


def train2(net, loader, opt, accum):
    model = DDP(net)
    for i, x in enumerate(loader):
        loss = model(x).mean()
        torch.autograd.backward(loss, torch.full_like(loss, 1 / accum))
        if (i + 1) % accum == 0:
            opt.step()
            opt.zero_grad()
