# What it does: a trainer that is given the wrapped model.
# Why it is right: as above.
import torch, torch.distributed as dist, torch.nn.functional as F


class Trainer:
    """`model` is a DistributedDataParallel over the data ranks"""

    def __init__(self, model, opt, dp_group, cp_group, dp_cp_group):
        self.model, self.opt = model, opt
        self.dp_group, self.cp_group, self.dp_cp_group = dp_group, cp_group, dp_cp_group

    def step(self, x, y):
        count = (y != -100).sum()
        dist.all_reduce(count, group=self.dp_cp_group)
        loss = F.cross_entropy(self.model(x), y, reduction="sum", ignore_index=-100) * self.dp_group.size() / count
        loss.backward()
        for p in self.model.parameters():
            dist.all_reduce(p.grad, group=self.cp_group)
        self.opt.step()
        self.opt.zero_grad()
