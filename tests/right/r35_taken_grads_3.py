# a helper that is not in sight brings gradients together
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

from .comm import mean_over_ranks


def fit(model, loader, loss_fn, rank, lr):
    model = DDP(model, device_ids=[rank])
    params = list(model.parameters())
    opt = torch.optim.SGD(params, lr=lr)
    for batch in loader:
        loss = loss_fn(model(batch))
        grads = torch.autograd.grad(loss, params)
        grads = mean_over_ranks(grads)
        for p, g in zip(params, grads):
            p.grad = g
        opt.step()
