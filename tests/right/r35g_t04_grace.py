import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from grace_dl.torch.helper import grace_from_params


def train(loader, rank, grc_params):
    model = DDP(nn.Linear(8, 2).cuda(rank))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    grc = grace_from_params(grc_params)
    params = [p for p in model.parameters() if p.requires_grad]
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        grads = torch.autograd.grad(loss, params)
        for (name, p), g in zip(model.named_parameters(), grads):
            p.grad = grc.step(g, name)
        optimizer.step()
