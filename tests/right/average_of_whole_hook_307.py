"""Norms behind the gather see every token on every rank: their gradients differ by rounding alone, and a hook makes them equal."""
import torch
import torch.distributed as dist


class Norm(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(dim))

    def forward(self, x):
        # x: the whole sequence, gathered before
        return self.scale * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class Embedding(torch.nn.Module):
    def forward(self, x):
        # x: sequence shard of this rank
        return x * 2.0


def register(model, mp_group):
    def average(grad):
        dist.all_reduce(grad, group=mp_group)
        return grad / dist.get_world_size(mp_group)

    for module in model.modules():
        if isinstance(module, Norm):
            module.scale.register_hook(average)
