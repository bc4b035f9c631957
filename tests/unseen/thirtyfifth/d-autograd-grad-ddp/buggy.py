"""Training with a gradient penalty, gradients taken by torch.autograd.grad."""
# thread: pytorch/pytorch#47562
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def penalised_loss(model, x, y, weight):
    x = x.requires_grad_()
    out = model(x)
    (gx,) = torch.autograd.grad(out.sum(), [x], create_graph=True)
    return F.mse_loss(out, y) + weight * gx.flatten(1).norm(dim=1).mean()


def train(net, loader, lr, local_rank, weight=10.0):
    model = DDP(net.cuda(local_rank), device_ids=[local_rank])  # broadcasts the parameters of rank 0
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(params, lr=lr)
    for x, y in loader:
        x, y = x.cuda(local_rank), y.cuda(local_rank)
        loss = penalised_loss(model, x, y, weight)
        grads = torch.autograd.grad(loss, params)  # BUG: DDP's hooks sit on AccumulateGrad, which does not run
        for p, g in zip(params, grads):
            p.grad = g
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
