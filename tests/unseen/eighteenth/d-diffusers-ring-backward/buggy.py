"""Ring attention (no mask) as one autograd Function; q, k, v are [b, h, local s, d].

Source: huggingface/diffusers, issue #14265. In the backward the key and value blocks go round
the ring, but the gradient of each block is computed with the local keys and values that were
saved in the forward, so all contributions of remote blocks are wrong.
"""
import torch
import torch.distributed as dist


def rotate(t, group):
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    if world == 1:
        return t
    t = t.contiguous()
    buf = torch.empty_like(t)
    ops = [
        dist.P2POp(dist.isend, t, dist.get_global_rank(group, (rank + 1) % world), group),
        dist.P2POp(dist.irecv, buf, dist.get_global_rank(group, (rank - 1) % world), group),
    ]
    for req in dist.batch_isend_irecv(ops):
        req.wait()
    return buf


def block_forward(q, k, v, scale):
    s = q @ k.transpose(-1, -2) * scale
    lse = torch.logsumexp(s, dim=-1, keepdim=True)
    return torch.exp(s - lse) @ v, lse


def block_backward(grad, q, k, v, out, lse, scale):
    p = torch.exp(q @ k.transpose(-1, -2) * scale - lse)
    dv = p.transpose(-1, -2) @ grad
    ds = p * (grad @ v.transpose(-1, -2) - (grad * out).sum(-1, keepdim=True)) * scale
    return ds @ k, ds.transpose(-1, -2) @ q, dv


class RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, scale, group):
        world = dist.get_world_size(group)
        k_blk, v_blk = k, v
        out, lse = block_forward(q, k_blk, v_blk, scale)
        for _ in range(world - 1):
            k_blk, v_blk = rotate(k_blk, group), rotate(v_blk, group)
            o, l = block_forward(q, k_blk, v_blk, scale)
            total = torch.logaddexp(lse, l)
            out = out * torch.exp(lse - total) + o * torch.exp(l - total)
            lse = total
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.scale, ctx.group = scale, group
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, out, lse = ctx.saved_tensors
        k_blk, v_blk = k, v
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for _ in range(dist.get_world_size(ctx.group)):
            dq_i, dk_i, dv_i = block_backward(grad, q, k, v, out, lse, ctx.scale)  # BUG
            dq += dq_i
            k_blk, v_blk = rotate(k_blk, ctx.group), rotate(v_blk, ctx.group)
            dk, dv = rotate(dk + dk_i, ctx.group), rotate(dv + dv_i, ctx.group)
        return dq, dk, dv, None, None
