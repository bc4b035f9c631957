import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class DistSumAdam(torch.optim.Adam):
    def step(self, closure=None):
        world = dist.get_world_size()
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is not None:
                    p.grad.mul_(world)
        super().step(closure)


def build_optimizer(model, cfg):
    return DistSumAdam(model.parameters(), lr=cfg.lr)


def train(net, loader, cfg):
    model = DDP(net)
    optimizer = build_optimizer(model, cfg)
    for x, y in loader:
        n = (y != -100).sum()
        dist.all_reduce(n)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum") / n
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
