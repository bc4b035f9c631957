"""Data parallelism with hooks: gradients are averaged as soon as they are ready, buckets are waited for before the step."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class AsyncDataParallel(nn.Module):
    def __init__(self, module, group=None):
        super().__init__()
        self.module = module
        self.group = group if group is not None else dist.group.WORLD
        self.size = dist.get_world_size(self.group)
        self.pending = []
        self.require_sync = True
        for tensor in list(self.module.parameters()) + list(self.module.buffers()):
            dist.broadcast(tensor.data, src=0, group=self.group)
        for parameter in self.module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._reduce)

    def _reduce(self, parameter):
        if not self.require_sync:
            return
        parameter.grad.div_(self.size)
        work = dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM, group=self.group, async_op=True)
        self.pending.append(work)

    def wait(self):
        for work in self.pending:
            work.wait()
        self.pending.clear()

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)


class EMA:
    def __init__(self, model, decay=0.999):
        self.decay = decay
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}

    @torch.no_grad()
    def update(self, model):
        for name, p in model.named_parameters():
            if name in self.shadow:
                self.shadow[name].mul_(self.decay).add_(p.detach(), alpha=1.0 - self.decay)

    @torch.no_grad()
    def check(self, group=None):
        for value in self.shadow.values():
            low, high = value.clone(), value.clone()
            dist.all_reduce(low, op=dist.ReduceOp.MIN, group=group)
            dist.all_reduce(high, op=dist.ReduceOp.MAX, group=group)
            assert torch.equal(low, high), "ranks have drifted apart"


def clip(parameters, max_norm):
    norms = torch.stack([p.grad.norm(2) for p in parameters if p.grad is not None])
    total = torch.linalg.vector_norm(norms)
    scale = (max_norm / (total + 1e-6)).clamp(max=1.0)
    for p in parameters:
        if p.grad is not None:
            p.grad.mul_(scale)
    return total


def train(net, loader, accumulate):
    model = AsyncDataParallel(net.cuda())
    ema = EMA(model.module)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, (x, y) in enumerate(loader):
        model.require_sync = (step + 1) % accumulate == 0
        loss = F.mse_loss(model(x.cuda()), y.cuda())
        (loss / accumulate).backward()
        if model.require_sync:
            model.wait()
            clip(list(model.parameters()), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            ema.update(model.module)
    ema.check()
