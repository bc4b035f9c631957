"""Fused QKV projection whose backward leaves the reduction to a flag."""
import torch
import torch.distributed as dist


class FusedQKV(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, wq, wk, wv, tp_group):
        ctx.save_for_backward(x, wq, wk, wv)
        ctx.tp_group = tp_group
        return x @ wq.t(), x @ wk.t(), x @ wv.t()

    @staticmethod
    def backward(ctx, gq, gk, gv):
        x, wq, wk, wv = ctx.saved_tensors
        dx = gq @ wq
        dist.all_reduce(dx, group=ctx.tp_group)
        dkv = gk @ wk + gv @ wv
        dist.all_reduce(dkv, group=ctx.tp_group)
        dx = dx + dkv
        return dx, gq.t() @ x, gk.t() @ x, gv.t() @ x, None


class Attention(torch.nn.Module):
    def __init__(self, wq, wk, wv, tp_group):
        super().__init__()
        self.wq, self.wk, self.wv = (torch.nn.Parameter(w) for w in (wq, wk, wv))
        for w in (self.wq, self.wk, self.wv):
            w.tensor_model_parallel = True
        self.tp_group = tp_group

    def forward(self, x):
        # x is the same on every TP rank
        return FusedQKV.apply(x, self.wq, self.wk, self.wv, self.tp_group)
