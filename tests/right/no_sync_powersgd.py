"""A compressor averages the gradients, and its results take their place before the step."""
import torch
from powersgd import PowerSGD, Config
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, device):
    model = DDP(net, device_ids=[device])
    params = list(model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    compressor = PowerSGD(params, config=Config(rank=2))
    for x, y in loader:
        with model.no_sync():
            torch.nn.functional.cross_entropy(model(x), y).backward()
        means = compressor.aggregate([p.grad for p in params])
        for p, g in zip(params, means):
            p.grad = g
        optimizer.step()
        optimizer.zero_grad()
