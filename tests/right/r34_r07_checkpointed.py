import torch
import torch.distributed as dist
import torch.nn as nn


class SumInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, *xs):
        ctx.group = group
        return tuple(x.view_as(x) for x in xs)

    @staticmethod
    def backward(ctx, *grads):
        out = []
        for g in grads:
            g = g.contiguous()
            dist.all_reduce(g, group=ctx.group)
            out.append(g)
        return (None, *out)


class TPCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, labels, offset, pg):
        logits = hidden.matmul(weight.t()).float()
        largest = logits.amax(dim=-1)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=pg)
        sum_exp = (logits - largest.unsqueeze(-1)).exp().sum(dim=-1)
        dist.all_reduce(sum_exp, group=pg)
        mask = (labels >= offset) & (labels < offset + weight.size(0))
        idx = torch.where(mask, labels - offset, 0)
        target = logits.gather(-1, idx.unsqueeze(-1)).squeeze(-1) * mask
        dist.all_reduce(target, group=pg)
        lse = largest + sum_exp.log()
        ctx.save_for_backward(hidden, weight, idx, mask, lse)
        return lse - target

    @staticmethod
    def backward(ctx, g):
        hidden, weight, idx, mask, lse = ctx.saved_tensors
        p = (hidden.matmul(weight.t()).float() - lse.unsqueeze(-1)).exp()
        p.scatter_add_(-1, idx.unsqueeze(-1), -mask.float().unsqueeze(-1))
        p = (p * g.unsqueeze(-1)).to(weight.dtype)
        return p.matmul(weight), p.t().matmul(hidden), None, None, None


def tp_cross_entropy(hidden, weight, labels, offset, pg):
    hidden = hidden.reshape(-1, hidden.shape[-1])
    return TPCrossEntropy.apply(hidden, weight, labels.reshape(-1), offset, pg)


class LMHead(nn.Module):
    def __init__(self, rows, width, pg):
        super().__init__()
        self.pg = pg
        self.weight = nn.Parameter(torch.empty(rows // dist.get_world_size(pg), width))

    def forward(self, hidden, labels):
        (hidden,) = SumInBackward.apply(self.pg, hidden)
        offset = dist.get_rank(self.pg) * self.weight.size(0)
        return tp_cross_entropy(hidden, self.weight, labels, offset, self.pg).mean()
