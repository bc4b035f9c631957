"""Experts are spread over all ranks: each rank has its own, whose gradients are whole and are scaled by the learning rate."""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Trainer:
    def __init__(self, model, ep_world):
        assert ep_world == dist.get_world_size()
        self.experts = list(model.local_experts)
        self.model = FSDP(model, ignored_modules=self.experts)
        self.opt_e = torch.optim.SGD([p for m in self.experts for p in m.parameters()], lr=0.1 / ep_world)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self, x):
        self.model(x).mean().backward()
        self.opt.step()
        self.opt_e.step()
