"""The backward sums the rows of all ranks again."""
import torch
import torch.distributed as dist


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gamma, beta):
        rows = torch.full((1,), float(x.shape[0]), device=x.device)
        stats = torch.cat([x.sum(0), x.square().sum(0), rows])
        dist.all_reduce(stats)
        c = x.size(1)
        mu = stats[:c] / stats[-1]
        inv = torch.rsqrt(stats[c:2 * c] / stats[-1] - mu * mu + 1e-5)
        ctx.save_for_backward(x, gamma, mu, inv)
        return (x - mu) * inv * gamma + beta

    @staticmethod
    def backward(ctx, g):
        x, gamma, mu, inv = ctx.saved_tensors
        xh = (x - mu) * inv
        db, dg = g.sum(0), (g * xh).sum(0)
        sums = torch.stack([db, dg])
        dist.all_reduce(sums)
        mean_rows = torch.tensor(float(x.size(0)), device=x.device)
        dist.all_reduce(mean_rows)
        mean_rows = mean_rows / dist.get_world_size()
        m = sums / (mean_rows * dist.get_world_size())
        return gamma * inv * (g - m[0] - xh * m[1]), dg, db
