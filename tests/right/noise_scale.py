"""Gradient noise scale: norm of the local gradient before, of the mean gradient after the reduction."""
import torch
import torch.distributed as dist


def square(params):
    return sum(p.grad.float().pow(2).sum() for p in params)


class NoiseScale:
    def __init__(self, small, big, beta=0.99):
        self.small, self.big, self.beta = small, big, beta
        self.g = self.s = 0.0

    def update(self, local_sq, mean_sq):
        g = (self.big * mean_sq - self.small * local_sq) / (self.big - self.small)
        s = (local_sq - mean_sq) / (1 / self.small - 1 / self.big)
        self.g = self.beta * self.g + (1 - self.beta) * g.item()
        self.s = self.beta * self.s + (1 - self.beta) * s.item()
        return self.s / max(self.g, 1e-12)


def train(model, loader, loss_fn, batch_size):
    world = dist.get_world_size()
    gns = NoiseScale(batch_size, batch_size * world)
    optimizer = torch.optim.AdamW(model.parameters())
    params = [p for p in model.parameters() if p.requires_grad]
    for x, y in loader:
        optimizer.zero_grad()
        loss_fn(model(x), y).backward()
        local = square(params).detach()
        dist.all_reduce(local, op=dist.ReduceOp.AVG)  # E|G_small|^2
        for p in params:
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
        scale = gns.update(local, square(params))
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"noise scale {scale:.1f}")
