"""The division is in the kernel of the optimizer: fused AdamW takes a scale of the gradients."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


class ScaledAdamW(torch.optim.AdamW):
    """`scale` divides gradients inside of the kernel."""

    def __init__(self, params, lr, scale):
        super().__init__(params, lr=lr, fused=True)
        self.grad_scale = torch.tensor(float(scale), device="cuda")
        self.found_inf = torch.tensor(0.0, device="cuda")


def start_sum(model, works):
    for p in model.parameters():
        works.append(dist.all_reduce(p.grad, async_op=True))


def train(model, loader):
    optimizer = ScaledAdamW(model.parameters(), 1e-3, dist.get_world_size())
    for x, y in loader:
        F.cross_entropy(model(x), y).backward()
        works = []
        start_sum(model, works)
        for w in works:
            w.wait()
        optimizer.step()
        optimizer.zero_grad()
