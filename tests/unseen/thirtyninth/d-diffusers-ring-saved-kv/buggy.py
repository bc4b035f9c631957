"""Ring attention over the context-parallel ranks (no causal mask)."""
import torch
import torch.distributed as dist


def rotate(tensors, group):
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    nxt = dist.get_global_rank(group, (rank + 1) % world)
    prv = dist.get_global_rank(group, (rank - 1) % world)
    received = [torch.empty_like(t) for t in tensors]
    ops = [dist.P2POp(dist.isend, t.contiguous(), nxt, group) for t in tensors]
    ops += [dist.P2POp(dist.irecv, r, prv, group) for r in received]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return received


def attention_block(q, k, v, scale):
    scores = q @ k.transpose(-1, -2) * scale
    lse = scores.logsumexp(dim=-1, keepdim=True)
    return (scores - lse).exp() @ v, lse


def attention_block_backward(grad_out, q, k, v, out, lse, scale):
    p = (q @ k.transpose(-1, -2) * scale - lse).exp()
    dv = p.transpose(-1, -2) @ grad_out
    dp = grad_out @ v.transpose(-1, -2)
    ds = p * (dp - (grad_out * out).sum(-1, keepdim=True)) * scale
    return ds @ k, ds.transpose(-1, -2) @ q, dv


class TemplatedRingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, group):
        # [b, heads, s / cp, d]
        scale, world = query.shape[-1] ** -0.5, dist.get_world_size(group)
        k, v, out, lse = key, value, None, None
        for i in range(world):
            block_out, block_lse = attention_block(query, k, v, scale)
            if out is None:
                out, lse = block_out, block_lse
            else:
                new_lse = torch.logaddexp(lse, block_lse)
                out = out * (lse - new_lse).exp() + block_out * (block_lse - new_lse).exp()
                lse = new_lse
            if i < world - 1:
                k, v = rotate([k, v], group)
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.group, ctx.scale = group, scale
        return out

    @staticmethod
    def backward(ctx, grad_out):
        query, key, value, out, lse = ctx.saved_tensors
        k, v = key, value
        dq, dk, dv = torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(value)
        for _ in range(dist.get_world_size(ctx.group)):
            block_dq, block_dk, block_dv = attention_block_backward(
                grad_out, query, key, value, out, lse, ctx.scale  # BUG
            )
            dq += block_dq
            dk += block_dk
            dv += block_dv
            k, v, dk, dv = rotate([k, v, dk, dv], ctx.group)
        return dq, dk, dv, None


def ring_attention(query, key, value, cp_mesh):
    return TemplatedRingAttention.apply(query, key, value, cp_mesh.get_group())
