import torch
import torch.distributed as dist
import torch.nn.functional as F


class GatherParamAvg(torch.autograd.Function):
    @staticmethod
    def forward(ctx, shard, group):
        ctx.group = group
        full = shard.new_empty(shard.shape[0] * group.size(), *shard.shape[1:])
        dist.all_gather_into_tensor(full, shard, group=group)
        return full

    @staticmethod
    def backward(ctx, g):
        out = g.new_empty(g.shape[0] // ctx.group.size(), *g.shape[1:])
        dist.reduce_scatter_tensor(out, g.contiguous(), group=ctx.group)
        return out / ctx.group.size(), None


class Layer(torch.nn.Module):
    def __init__(self, shard, group):
        super().__init__()
        self.shard = torch.nn.Parameter(shard)
        self.group = group

    def loss(self, x, y):
        w = GatherParamAvg.apply(self.shard, self.group)
        n, r = dist.get_world_size(self.group), dist.get_rank(self.group)
        x = x.narrow(0, r * (x.shape[0] // n), x.shape[0] // n)
        y = y.narrow(0, r * (y.shape[0] // n), y.shape[0] // n)
        return F.cross_entropy(x @ w.t(), y)
