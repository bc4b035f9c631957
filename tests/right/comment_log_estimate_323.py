import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, opt):
    model = DDP(net)
    for i, (x, y) in enumerate(loader):

        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        # shown: an estimate of the mean over all tokens
        if i % 10 == 0:
            v = loss.detach().clone()
            dist.all_reduce(v, op=dist.ReduceOp.AVG)
            print(v.item())
