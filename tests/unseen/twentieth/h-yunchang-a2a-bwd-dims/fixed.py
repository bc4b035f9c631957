"""Ulysses attention: all-to-all between sequence and heads."""
import torch
import torch.distributed as dist


def all_to_all_4d(x, scatter_idx, gather_idx, group):
    parts = [t.contiguous() for t in x.chunk(dist.get_world_size(group), dim=scatter_idx)]
    out = [torch.empty_like(t) for t in parts]
    dist.all_to_all(out, parts, group=group)
    return torch.cat(out, dim=gather_idx)


class SeqAllToAll4D(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, x, scatter_idx, gather_idx):
        ctx.group, ctx.scatter_idx, ctx.gather_idx = group, scatter_idx, gather_idx
        return all_to_all_4d(x, scatter_idx, gather_idx, group)

    @staticmethod
    def backward(ctx, grad_output):
        grad = all_to_all_4d(grad_output, ctx.gather_idx, ctx.scatter_idx, ctx.group)
        return None, grad, None, None


class UlyssesAttention(torch.nn.Module):
    def __init__(self, group, attn_fn):
        super().__init__()
        self.group, self.attn_fn = group, attn_fn

    def forward(self, q, k, v):
        # (b, s/p, h, d) -> (b, s, h/p, d) and back
        q, k, v = (SeqAllToAll4D.apply(self.group, t, 2, 1) for t in (q, k, v))
        return SeqAllToAll4D.apply(self.group, self.attn_fn(q, k, v), 1, 2)
