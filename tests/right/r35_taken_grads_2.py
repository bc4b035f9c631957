# inner steps of MAML, then a backward pass of the wrapper
import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def fit(model, loader, loss_fn, rank, lr):
    model = DDP(model, device_ids=[rank])
    opt = torch.optim.SGD(model.parameters(), lr=lr)
    for batch in loader:
        params = list(model.parameters())
        grads = torch.autograd.grad(loss_fn(model(batch[0])), params, create_graph=True)
        fast = [p - lr * g for p, g in zip(params, grads)]
        loss = loss_fn(torch.func.functional_call(model, fast, batch[1]))
        loss.backward()
        opt.step()
