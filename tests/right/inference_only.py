import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, g):
        return g, None


class MLP(nn.Module):
    def __init__(self, dim, hidden, group):
        super().__init__()
        n = dist.get_world_size(group)
        self.group = group
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, hidden // n)
        self.down = nn.Linear(hidden // n, dim, bias=False)

    def forward(self, x):
        y = self.down(F.gelu(self.up(self.norm(x))))
        return x + Reduce.apply(y, self.group)


@torch.inference_mode()
def generate(net, x, steps):
    for _ in range(steps):
        x = net(x)
    return x


if __name__ == "__main__":
    dist.init_process_group("gloo")
    net = MLP(64, 256, dist.group.WORLD).eval()
    print(generate(net, torch.randn(1, 64), 3))
