# Right: the stats are averaged by the trainer's loop over named_buffers
import torch
import torch.distributed as dist
from torch import nn


class Codebook(nn.Module):
    def __init__(self, n, d):
        super().__init__()
        self.register_buffer("size", torch.zeros(n))
        self.register_buffer("embed", torch.randn(n, d))
        dist.broadcast(self.embed, 0)

    @torch.no_grad()
    def ema(self, x, idx):
        hot = torch.nn.functional.one_hot(idx, self.size.shape[0]).to(x.dtype)
        self.size.mul_(0.99).add_(hot.sum(0), alpha=0.01)
        self.embed.mul_(0.99).add_(hot.t() @ x / hot.sum(0).clamp(min=1)[:, None], alpha=0.01)


class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def step(self, x):
        loss = self.model(x)
        loss.backward()
        world = dist.get_world_size()
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        for name, b in self.model.named_buffers():
            if b.is_floating_point():
                dist.all_reduce(b)
                b /= world
        self.optimizer.step()
