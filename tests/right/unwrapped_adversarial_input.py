"""The pass around the wrapper trains an input of this rank; the model is trained through the wrapper."""
import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def attack(model, x, y, eps):
    delta = torch.zeros_like(x, requires_grad=True)
    optimizer = torch.optim.SGD([delta], lr=eps)
    for _ in range(3):
        loss = -torch.nn.functional.cross_entropy(model.module(x + delta), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return delta.detach()


def train(net, loader, device, opt_cls):
    model = DDP(net, device_ids=[device])
    opt = opt_cls(model.parameters())
    for x, y in loader:
        delta = attack(model, x, y, 0.1)
        opt.zero_grad()
        torch.nn.functional.cross_entropy(model(x + delta), y).backward()
        opt.step()
