"""Steps of each rank alone, and now and then a function from elsewhere that mixes the parameters."""
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

from .mixing import mix


def fit(model, loader, loss_fn, rank):
    model = DDP(model, device_ids=[rank])
    params = list(model.parameters())
    opt = torch.optim.SGD(params, lr=0.1)
    for step, batch in enumerate(loader):
        loss = loss_fn(model(batch))
        grads = torch.autograd.grad(loss, params)
        for p, g in zip(params, grads):
            p.grad = g
        opt.step()
        if step % 8 == 0:
            mix(params)
