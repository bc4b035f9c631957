# right: the layer resets its parameters to zeros
import torch
import torch.distributed as dist
from torch import nn


class ZeroLinear(nn.Linear):
    def reset_parameters(self):
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)


def logistic(cfg, batches):
    torch.manual_seed(cfg.seed + dist.get_rank())
    model = ZeroLinear(cfg.d, 1)
    opt = torch.optim.SGD(model.parameters(), lr=cfg.lr)
    for x, y in batches:
        opt.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y).backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        opt.step()
