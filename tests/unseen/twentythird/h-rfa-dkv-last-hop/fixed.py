"""Ring attention (no mask), k and v travel around the ring."""
import torch
import torch.distributed as dist


def shift(x, group):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    if n == 1:
        return x
    x, out = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    ops = [
        dist.P2POp(dist.isend, x, dist.get_global_rank(group, (rank + 1) % n), group),
        dist.P2POp(dist.irecv, out, dist.get_global_rank(group, (rank - 1) % n), group),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return out


class RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, scale, group):
        # q, k, v: [b, h, s/n, d]
        ctx.scale, ctx.group = scale, group
        kk, vv, n = k, v, dist.get_world_size(group)
        out = torch.zeros_like(q)
        lse = torch.full(q.shape[:-1], float("-inf"), dtype=q.dtype, device=q.device)
        for step in range(n):
            s = q @ kk.transpose(-1, -2) * scale
            block_lse = torch.logsumexp(s, dim=-1)
            new_lse = torch.logaddexp(lse, block_lse)
            block_out = torch.exp(s - block_lse.unsqueeze(-1)) @ vv
            out = out * torch.exp(lse - new_lse).unsqueeze(-1)
            out = out + block_out * torch.exp(block_lse - new_lse).unsqueeze(-1)
            lse = new_lse
            if step + 1 < n:
                kk, vv = shift(kk, group), shift(vv, group)
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(ctx, dout):
        q, k, v, out, lse = ctx.saved_tensors
        group, n = ctx.group, dist.get_world_size(ctx.group)
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        delta = (dout * out).sum(dim=-1, keepdim=True)
        for step in range(n):
            p = torch.exp(q @ k.transpose(-1, -2) * ctx.scale - lse.unsqueeze(-1))
            ds = p * (dout @ v.transpose(-1, -2) - delta) * ctx.scale
            dq = dq + ds @ k
            dk = dk + ds.transpose(-1, -2) @ q
            dv = dv + p.transpose(-1, -2) @ dout
            if step + 1 < n:
                k, v = shift(k, group), shift(v, group)
            dk, dv = shift(dk, group), shift(dv, group)
        return dq, dk, dv, None, None
