import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class AllMean(torch.autograd.Function):
    """Identity whose backward is a mean over the ranks."""

    @staticmethod
    def forward(ctx, p):
        return p.view_as(p)

    @staticmethod
    def backward(ctx, grad_acc):
        grad_acc = grad_acc.contiguous()
        dist.all_reduce(grad_acc)
        return grad_acc / dist.get_world_size()


def train(net, loader, rank):
    model = DDP(net.cuda(rank))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        shared = {n: AllMean.apply(p) for n, p in model.module.named_parameters()}
        loss = F.cross_entropy(torch.func.functional_call(model.module, shared, x), y)
        grads = torch.autograd.grad(loss, list(model.parameters()))
        for p, g in zip(model.parameters(), grads):
            p.grad = g
        optimizer.step()
