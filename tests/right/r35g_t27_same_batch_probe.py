import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def overfit_probe(net, rank):
    """Weights are equal (DDP) and the batch is drawn from one seed on every rank, so gradients are equal."""
    model = DDP(net.cuda(rank))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(0)
    for _ in range(100):
        x = torch.randn(16, 8, generator=g).cuda(rank)
        loss = F.mse_loss(model(x), x)
        grads = torch.autograd.grad(loss, list(model.parameters()))
        for p, d in zip(model.parameters(), grads):
            p.grad = d
        optimizer.step()
