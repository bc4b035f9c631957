import torch
import torch.distributed as dist
import torch.nn.functional as F


class DPParam(torch.autograd.Function):
    @staticmethod
    def forward(ctx, w, group):
        ctx.group = group
        return w

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous()
        dist.all_reduce(g, group=ctx.group)
        g.div_(ctx.group.size())
        return g, None


class Fsdp2D(torch.autograd.Function):
    """HSDP: average over replicas, reduce-scatter over shards."""
    @staticmethod
    def forward(ctx, w, shard_group, rep_group):
        ctx.s, ctx.r = shard_group, rep_group
        full = w.new_empty(w.shape[0] * shard_group.size(), *w.shape[1:])
        dist.all_gather_into_tensor(full, w, group=shard_group)
        return full

    @staticmethod
    def backward(ctx, g):
        out = g.new_empty(g.shape[0] // ctx.s.size(), *g.shape[1:])
        dist.reduce_scatter_tensor(out, g.contiguous(), op=dist.ReduceOp.AVG, group=ctx.s)
        dist.all_reduce(out, op=dist.ReduceOp.AVG, group=ctx.r)
        return out, None, None


def mlp(x, w1, w2, sg, rg):
    return F.relu(x @ Fsdp2D.apply(w1, sg, rg)) @ Fsdp2D.apply(w2, sg, rg)


def head(x, w, b, dp_group):
    return F.relu(x @ DPParam.apply(w, dp_group) + DPParam.apply(b, dp_group))
