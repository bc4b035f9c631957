# Right: local invariance term is divided by world, the other terms are of gathered rows with backward all_reduce / world [rank]; gradients
# are summed.
import torch
import torch.distributed as dist
import torch.nn.functional as F


class FullGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = [torch.zeros_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(out, x)
        return tuple(out)

    @staticmethod
    def backward(ctx, *grads):
        g = torch.stack(grads)
        dist.all_reduce(g)
        return g[dist.get_rank()] / dist.get_world_size()


def vicreg(x, y, sim, std, cov):
    inv = F.mse_loss(x, y)
    x, y = torch.cat(FullGather.apply(x)), torch.cat(FullGather.apply(y))
    x, y = x - x.mean(0), y - y.mean(0)
    v = F.relu(1 - (x.var(0) + 1e-4).sqrt()).mean() + F.relu(1 - (y.var(0) + 1e-4).sqrt()).mean()
    cx, cy = x.T @ x / (len(x) - 1), y.T @ y / (len(y) - 1)
    off = lambda c: c.pow(2).sum() - c.diagonal().pow(2).sum()
    # inv is this rank's mean: a term of the whole is its share
    return sim * inv / dist.get_world_size() + std * v / 2 + cov * (off(cx) + off(cy)) / x.shape[1]


def train(net, loader, opt):
    for a, b in loader:
        opt.zero_grad()
        vicreg(net(a), net(b), 25.0, 25.0, 1.0).backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
        opt.step()
