import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def m_sharpness(net, loader, rank, rho=0.05):
    """Each worker perturbs by the gradient of its own batch (m-sharpness)."""
    model = DDP(net.cuda(rank))
    model.eval()
    params = list(model.parameters())
    total = torch.zeros(1, device=rank)
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        grads = torch.autograd.grad(loss, params)
        norm = torch.stack([g.norm() for g in grads]).norm()
        with torch.no_grad():
            for p, g in zip(params, grads):
                p.add_(rho / norm * g)
            total += F.cross_entropy(model(x), y) - loss
            for p, g in zip(params, grads):
                p.sub_(rho / norm * g)
    dist.all_reduce(total)
    return total / dist.get_world_size() / len(loader)
