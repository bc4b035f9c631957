"""Ulysses attention: all-to-all between sequence and head sharding, then local SDPA."""
import torch
import torch.distributed as dist
import torch.nn.functional as F

_POOL = {}


def workspace(tag, shape, like):
    numel = torch.Size(shape).numel()
    buf = _POOL.get((tag, like.dtype))
    if buf is None or buf.numel() < numel:
        buf = _POOL[(tag, like.dtype)] = torch.empty(numel, dtype=like.dtype, device=like.device)
    return buf[:numel].view(shape)


class SeqToHeads(torch.autograd.Function):
    """[s/p, h, d] -> [s, h/p, d]"""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group, p = group, group.size()
        s, h, d = x.shape
        send = x.view(s, p, h // p, d).transpose(0, 1).contiguous()
        recv = workspace("seq_to_heads", send.shape, send)  # BUG
        dist.all_to_all_single(recv, send, group=group)
        return recv.view(p * s, h // p, d)

    @staticmethod
    def backward(ctx, grad):
        p = ctx.group.size()
        s, h, d = grad.size(0) // p, grad.size(1), grad.size(2)
        recv = torch.empty(p, s, h, d, dtype=grad.dtype, device=grad.device)
        dist.all_to_all_single(recv, grad.contiguous().view(p, s, h, d), group=ctx.group)
        return recv.transpose(0, 1).reshape(s, p * h, d), None


def core_attention(q, k, v, group):
    q, k, v = (SeqToHeads.apply(t, group).transpose(0, 1) for t in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)
