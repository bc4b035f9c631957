"""A count of channels is no count of rows: only moments are summed."""
import torch
import torch.distributed as dist


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gamma, beta):
        sums = torch.zeros(2, x.size(1), device=x.device)
        sums[0] = x.sum(0) / x.size(0)
        sums[1] = x.square().sum(0) / x.size(0)
        dist.all_reduce(sums)
        mu, sq = sums / dist.get_world_size()
        inv = torch.rsqrt(sq - mu * mu + 1e-5)
        ctx.save_for_backward(x, gamma, mu, inv)
        return (x - mu) * inv * gamma + beta

    @staticmethod
    def backward(ctx, g):
        x, gamma, mu, inv = ctx.saved_tensors
        xh = (x - mu) * inv
        db, dg = g.sum(0), (g * xh).sum(0)
        sums = torch.stack([db, dg])
        dist.all_reduce(sums)
        m = sums / (x.size(0) * dist.get_world_size())
        return gamma * inv * (g - m[0] - xh * m[1]), dg, db
