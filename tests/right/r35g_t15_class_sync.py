import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, net, rank):
        self.model = DDP(net.cuda(rank))
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.params = list(self.model.parameters())

    def share(self, accs):
        for acc in accs:
            dist.all_reduce(acc)
            acc.div_(dist.get_world_size())

    def step(self, batches):
        accs = [torch.zeros_like(p) for p in self.params]
        for x, y in batches:
            loss = F.cross_entropy(self.model(x), y)
            grads = torch.autograd.grad(loss, list(self.model.parameters()))
            for acc, g in zip(accs, grads):
                acc.add_(g)
        self.share(accs)
        for p, acc in zip(self.params, accs):
            p.grad = acc
        self.optimizer.step()
