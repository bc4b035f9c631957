import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from opt import build_optimizer


class Trainer:
    def __init__(self, net, cfg):
        self.model = DDP(net)
        self.optimizer = build_optimizer(self.model, cfg)

    def scale_grads(self, s):
        for g in self.optimizer.param_groups:
            for p in g["params"]:
                if p.grad is not None:
                    p.grad.mul_(s)

    def step(self, x, y):
        n = (y != -100).sum()
        dist.all_reduce(n)
        loss = F.cross_entropy(self.model(x).flatten(0, 1), y.flatten(), reduction="sum") / n
        loss.backward()
        self.scale_grads(dist.get_world_size())
        self.optimizer.step()
        self.optimizer.zero_grad()
