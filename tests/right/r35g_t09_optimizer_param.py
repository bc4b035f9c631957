import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def train(model_def, loader, rank, make_optimizer):
    model = DDP(model_def.cuda(rank))
    optimizer = make_optimizer(model)
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        grads = torch.autograd.grad(loss, list(model.parameters()))
        for p, g in zip(model.parameters(), grads):
            p.grad = g
        optimizer.step()


if __name__ == "__main__":
    from optim.shared import sharded_lamb
    dist.init_process_group("nccl")
    train(nn.Linear(8, 2), [], dist.get_rank(), sharded_lamb)
