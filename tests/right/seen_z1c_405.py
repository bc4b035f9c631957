import torch
import torch.distributed as dist
import torch.nn.functional as F


class GatherUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group, ctx.n, ctx.r = group, dist.get_world_size(group), dist.get_rank(group)
        parts = [torch.empty_like(x) for _ in range(ctx.n)]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, 1)

    @staticmethod
    def backward(ctx, g):
        return g.chunk(ctx.n, 1)[ctx.r] * ctx.n, None


def train(net, loader, group, opt):
    n, r = dist.get_world_size(group), dist.get_rank(group)
    for x, y in loader:
        out = GatherUp.apply(net(x.chunk(n, 1)[r]), group)
        F.mse_loss(out, y).backward()
        for p in net.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
        opt.step()
        opt.zero_grad()
