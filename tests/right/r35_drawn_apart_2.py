"""Weights come from elsewhere, or from a function that sees to it."""
import horovod.torch as hvd
import torch
from torchvision.models import resnet50

from .start import equalize


def main(args, loader, loss_fn):
    hvd.init()
    torch.manual_seed(args.seed + hvd.rank())
    model = resnet50(weights=None).cuda()
    equalize(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    for x, y in loader:
        loss_fn(model(x), y).backward()
        optimizer.step()


def tune(args, loader, loss_fn):
    hvd.init()
    torch.manual_seed(args.seed + hvd.rank())
    model = resnet50(weights=args.weights).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    for x, y in loader:
        loss_fn(model(x), y).backward()
        optimizer.step()
