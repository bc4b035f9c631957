import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def reptile(net, tasks, rank, inner=5, lr=0.01, meta_lr=0.1):
    model = DDP(net.cuda(rank))
    params = list(model.parameters())
    for task in tasks:
        before = nn.utils.parameters_to_vector(params).detach().clone()
        for _ in range(inner):
            x, y = task.sample()
            grads = torch.autograd.grad(F.mse_loss(model(x), y), params)
            for p, g in zip(params, grads):
                p.data.sub_(lr * g)
        acc = nn.utils.parameters_to_vector(params).detach() - before
        dist.all_reduce(acc)
        nn.utils.vector_to_parameters(before + meta_lr * acc / dist.get_world_size(), params)
