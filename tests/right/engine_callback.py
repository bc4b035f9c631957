"""A hook queues a callback of the autograd engine: the sum runs when the backward pass is through."""
import torch
import torch.distributed as dist
from torch.autograd import Variable


class EngineReducer:
    def __init__(self, module, group=None, bucket_mb=25):
        self.params = [p for p in module.parameters() if p.requires_grad]
        self.group, self.world = group, dist.get_world_size(group)
        self.bucket = bucket_mb * 2**20
        self.queued = False
        for p in self.params:
            p.register_post_accumulate_grad_hook(self.on_grad)

    def on_grad(self, _):
        if not self.queued:
            self.queued = True
            Variable._execution_engine.queue_callback(self.reduce_all)

    def buckets(self):
        out, size = [], 0
        for p in reversed(self.params):
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            out.append(p.grad)
            size += p.grad.numel() * p.grad.element_size()
            if size >= self.bucket:
                yield out
                out, size = [], 0
        if out:
            yield out

    def reduce_all(self):
        self.queued = False
        for grads in self.buckets():
            flat = torch.cat([g.flatten() for g in grads])
            dist.all_reduce(flat, group=self.group)
            flat /= self.world
            for g, new in zip(grads, flat.split([g.numel() for g in grads])):
                g.copy_(new.view_as(g))


def train(model, loader, optimizer):
    EngineReducer(model)
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
