import torch
import torch.distributed as dist
import torch.nn as nn


class AllGatherSeq(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = x.new_empty((x.size(0) * dist.get_world_size(group), *x.shape[1:]))
        dist.all_gather_into_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty((grad.size(0) // dist.get_world_size(ctx.group), *grad.shape[1:]))
        dist.reduce_scatter_tensor(out, grad.contiguous(), group=ctx.group)
        return out, None


class FusedLinearCE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, target, start, group):
        logits = torch.nn.functional.linear(x, weight)
        m = torch.amax(logits, dim=-1)
        dist.all_reduce(m, op=dist.ReduceOp.MAX, group=group)
        z = torch.exp(logits - m[:, None]).sum(dim=-1)
        dist.all_reduce(z, group=group)
        lse = m + z.log()
        local = target - start
        own = (local >= 0) & (local < weight.size(0))
        local = local.clamp(0, weight.size(0) - 1)
        hit = torch.where(own, logits.gather(1, local[:, None]).squeeze(1), 0.0)
        dist.all_reduce(hit, group=group)
        ctx.save_for_backward(x, weight, local, own, lse)
        return lse - hit

    @staticmethod
    def backward(ctx, g):
        x, weight, local, own, lse = ctx.saved_tensors
        p = torch.exp(torch.nn.functional.linear(x, weight) - lse[:, None])
        p.scatter_add_(1, local[:, None], -own[:, None].to(p.dtype))
        p = p * g[:, None]
        dx = torch.matmul(p, weight)
        dw = torch.matmul(p.t(), x)
        return dx, dw, None, None, None


def loss_of_rows(x, weight, target, start, group):
    x = x.view(-1, x.size(-1))
    return FusedLinearCE.apply(x, weight, target.view(-1), start, group).mean()


class Model(nn.Module):
    def __init__(self, body, rows, width, group):
        super().__init__()
        self.body, self.group = body, group
        self.weight = nn.Parameter(torch.empty(rows // dist.get_world_size(group), width))

    def forward(self, x, target):
        h = AllGatherSeq.apply(self.body(x), self.group)
        return loss_of_rows(h, self.weight, target, dist.get_rank(self.group) * self.weight.size(0), self.group)
