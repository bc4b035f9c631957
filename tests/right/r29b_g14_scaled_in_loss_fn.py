# right: step divides the gradient by a helper
import torch
import torch.distributed as dist
from mesh import gather_from_ranks, group_of, scatter_to_ranks, size_of


class Mixer(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(channels, channels))
        self.weight.shared_over = ["space", "channels"]
        self.weight.same_input_over = ["channels"]

    def forward(self, x):
        x = gather_from_ranks(x, 1, "channels")
        return scatter_to_ranks(x @ self.weight, 1, "channels")


def attach(model):
    for p in model.parameters():
        p.register_hook(make_hook(p))


def make_hook(p):
    def hook(grad):
        grad = grad.clone()
        for name in p.shared_over:
            dist.all_reduce(grad, group=group_of(name))
        return grad

    return hook


def rescale(p):
    p.grad = p.grad / size_of("channels")


def step(model, optimizer, loss):
    loss.backward()
    # every rank of `channels` has had the same gradient of the mixers: take the copies out
    for m in model.modules():
        if isinstance(m, Mixer):
            rescale(m.weight)
    optimizer.step()
