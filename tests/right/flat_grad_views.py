"""Gradients are views of one flat buffer: only the buffer is reduced."""
import torch
import torch.distributed as dist


class FlatGrads:
    def __init__(self, params, group=None):
        self.params = [p for p in params if p.requires_grad]
        self.group = group
        n = sum(p.numel() for p in self.params)
        self.buffer = torch.zeros(n, device=self.params[0].device)
        at = 0
        for p in self.params:
            p.grad = self.buffer[at : at + p.numel()].view_as(p)
            at += p.numel()

    def zero(self):
        self.buffer.zero_()

    def mean(self):
        self.buffer.div_(dist.get_world_size(self.group))
        dist.all_reduce(self.buffer, group=self.group)

    def clip(self, largest):
        norm = self.buffer.norm()
        self.buffer.mul_((largest / (norm + 1e-6)).clamp(max=1.0))
        return norm


def train(model, loader, loss_fn, dp_group):
    grads = FlatGrads(model.parameters(), dp_group)
    optimizer = torch.optim.AdamW(model.parameters())
    for x, y in loader:
        grads.zero()
        loss_fn(model(x), y).backward()
        grads.mean()
        norm = grads.clip(1.0)
        optimizer.step()
        if dist.get_rank() == 0:
            print(norm.item())
