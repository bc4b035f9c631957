"""Gradients move to a buffer in float32, are cleared, the buffer is reduced and becomes the gradient of masters."""
import torch
import torch.distributed as dist


class MasterOptimizer:
    def __init__(self, model, group, lr=1e-4):
        self.params = [p for p in model.parameters() if p.requires_grad]
        self.masters = [p.detach().float().clone() for p in self.params]
        self.group = group
        self.buffers = [torch.zeros_like(m) for m in self.masters]
        self.inner = torch.optim.AdamW(self.masters, lr=lr)

    def stash(self):
        for b, p in zip(self.buffers, self.params):
            b.add_(p.grad.float())
            p.grad = None

    def reduce(self):
        n = dist.get_world_size(self.group)
        for b in self.buffers:
            dist.all_reduce(b, group=self.group)
            b.div_(n)

    def step(self):
        self.reduce()
        for m, b in zip(self.masters, self.buffers):
            m.grad = b
        norm = torch.nn.utils.clip_grad_norm_(self.masters, 1.0)
        self.inner.step()
        for m, b, p in zip(self.masters, self.buffers, self.params):
            m.grad = None
            b.zero_()
            p.data.copy_(m)
        return norm


def train(model, loader, group, rounds=4):
    optimizer = MasterOptimizer(model.bfloat16(), group)
    for i, (x, y) in enumerate(loader):
        loss = torch.nn.functional.cross_entropy(model(x), y) / rounds
        loss.backward()
        optimizer.stash()
        if (i + 1) % rounds == 0:
            print(optimizer.step().item())
