"""Grouped experts over EP ranks: gather tokens, run the local experts, scatter the sums back."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


def all_gather_rows(x, group):
    out = torch.empty(x.size(0) * group.size(), *x.shape[1:], dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out


def reduce_scatter_rows(x, group):
    out = torch.empty(x.size(0) // group.size(), *x.shape[1:], dtype=x.dtype, device=x.device)
    dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
    return out


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return all_gather_rows(x, group)

    @staticmethod
    def backward(ctx, grad):
        return reduce_scatter_rows(grad, ctx.group), None


class _ReduceScatterRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return reduce_scatter_rows(x, group)

    @staticmethod
    def backward(ctx, grad):
        return all_gather_rows(grad, ctx.group), None


class GroupedExperts(torch.nn.Module):
    def __init__(self, w1, w2, ep_group):
        super().__init__()
        self.w1, self.w2 = torch.nn.Parameter(w1), torch.nn.Parameter(w2)  # [local experts, ...]
        self.ep_group, self.first = ep_group, dist.get_rank(ep_group) * w1.size(0)

    def forward(self, x, probs, ids):
        # x: [t, h]; probs, ids: [t, top_k] of this rank's tokens
        x = _GatherRows.apply(x, self.ep_group)
        ids = all_gather_rows(ids, self.ep_group)
        probs = _GatherRows.apply(probs, self.ep_group)
        out = torch.zeros_like(x)
        for e in range(self.w1.size(0)):
            tok, slot = torch.where(ids == self.first + e)
            h = F.silu(x[tok] @ self.w1[e]) @ self.w2[e]
            out = out.index_add(0, tok, h * probs[tok, slot].unsqueeze(-1))
        return _ReduceScatterRows.apply(out, self.ep_group)
