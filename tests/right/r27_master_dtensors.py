"""Half-precision training with float masters of a sharded model."""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


class MasterOptimizer:
    def __init__(self, model, lr, max_norm=1.0):
        self.max_norm = max_norm
        self.params = [p for p in model.parameters() if p.requires_grad]
        self.masters = [p.detach().clone().float().requires_grad_() for p in self.params]
        self.inner = torch.optim.AdamW(self.masters, lr=lr)

    def step(self):
        for p, master in zip(self.params, self.masters):
            master.grad = None if p.grad is None else p.grad.detach().float()
        torch.nn.utils.clip_grad_norm_(self.masters, self.max_norm)
        self.inner.step()
        with torch.no_grad():
            for p, master in zip(self.params, self.masters):
                p.copy_(master)
                p.grad = None


def build(net, lr):
    model = fully_shard(net)
    return model, MasterOptimizer(model, lr)


def train(net, loader, lr):
    model, optimizer = build(net, lr)
    for batch in loader:
        model(batch).mean().backward()
        optimizer.step()
