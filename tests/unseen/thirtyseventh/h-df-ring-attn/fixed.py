# thread: https://github.com/huggingface/diffusers/issues/14265
"""Bidirectional ring attention for diffusion transformers."""
import torch
import torch.distributed as dist
from torch import nn


def rotate(tensors, group):
    """Hand every tensor to the next rank of the ring and take the previous rank's."""
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    if world == 1:
        return tensors
    dst = dist.get_global_rank(group, (rank + 1) % world)
    src = dist.get_global_rank(group, (rank - 1) % world)
    received = [torch.empty_like(t) for t in tensors]
    ops = []
    for t, r in zip(tensors, received):
        ops.append(dist.P2POp(dist.isend, t.contiguous(), dst, group))
        ops.append(dist.P2POp(dist.irecv, r, src, group))
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return received


def merge(out, lse, block_out, block_lse):
    if out is None:
        return block_out, block_lse
    new_lse = torch.logaddexp(lse, block_lse)
    out = out * (lse - new_lse).exp() + block_out * (block_lse - new_lse).exp()
    return out, new_lse


class RingAttention(torch.autograd.Function):
    """q, k, v: [batch, heads, tokens, dim], tokens split over the group."""

    @staticmethod
    def forward(ctx, q, k, v, group):
        scale = q.shape[-1] ** -0.5
        out, lse = None, None
        k_cur, v_cur = k, v
        for i in range(dist.get_world_size(group)):
            scores = (q @ k_cur.transpose(-1, -2)) * scale
            block_lse = scores.logsumexp(dim=-1, keepdim=True)
            block_out = (scores - block_lse).exp() @ v_cur
            out, lse = merge(out, lse, block_out, block_lse)
            k_cur, v_cur = rotate([k_cur, v_cur], group)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.group, ctx.scale = group, scale
        return out

    @staticmethod
    def backward(ctx, grad_out):
        q, k, v, out, lse = ctx.saved_tensors
        delta = (grad_out * out).sum(dim=-1, keepdim=True)
        grad_q = torch.zeros_like(q)
        k_cur, v_cur = k, v
        grad_k, grad_v = torch.zeros_like(k), torch.zeros_like(v)
        for i in range(dist.get_world_size(ctx.group)):
            probs = ((q @ k_cur.transpose(-1, -2)) * ctx.scale - lse).exp()
            grad_v = grad_v + probs.transpose(-1, -2) @ grad_out
            grad_scores = probs * (grad_out @ v_cur.transpose(-1, -2) - delta) * ctx.scale
            grad_q = grad_q + grad_scores @ k_cur
            grad_k = grad_k + grad_scores.transpose(-1, -2) @ q
            k_cur, v_cur, grad_k, grad_v = rotate([k_cur, v_cur, grad_k, grad_v], ctx.group)
        return grad_q, grad_k, grad_v, None


class Attention(nn.Module):
    def __init__(self, dim, heads, group):
        super().__init__()
        self.heads, self.group = heads, group
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        qkv = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        out = RingAttention.apply(qkv[0], qkv[1], qkv[2], self.group)
        return self.proj(out.transpose(1, 2).reshape(b, n, d))
