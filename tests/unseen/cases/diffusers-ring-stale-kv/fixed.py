"""Ring attention as an autograd Function whose per-step gradient is delegated to a backward op."""
# huggingface/diffusers issue 14265: the backward op reads the key/value of step 0 from ctx in every step of the ring.
import torch
import torch.distributed as dist


def _rotate(x, group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    out = torch.empty_like(x)
    ops = [
        dist.P2POp(dist.isend, x.contiguous(), (rank + 1) % size, group),
        dist.P2POp(dist.irecv, out, (rank - 1) % size, group),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return out


def _attention_forward_op(q, k, v):
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    lse = torch.logsumexp(scores, dim=-1, keepdim=True)
    return (scores - lse).exp() @ v, lse


def _attention_backward_op(ctx, grad_out, q, k, v, out, lse):
    scale = q.shape[-1] ** -0.5
    p = (q @ k.transpose(-1, -2) * scale - lse).exp()
    dv = p.transpose(-1, -2) @ grad_out
    dp = grad_out @ v.transpose(-1, -2)
    ds = p * (dp - (grad_out * out).sum(-1, keepdim=True)) * scale
    return ds @ k, ds.transpose(-1, -2) @ q, dv


class TemplatedRingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, group):
        out, lse = None, None
        k, v = key, value
        for i in range(dist.get_world_size(group)):
            o, l = _attention_forward_op(query, k, v)
            if out is None:
                out, lse = o, l
            else:
                new = torch.logaddexp(lse, l)
                out = out * (lse - new).exp() + o * (l - new).exp()
                lse = new
            k, v = _rotate(k, group), _rotate(v, group)
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.group = group
        return out

    @staticmethod
    def backward(ctx, grad_out):
        query, key, value, out, lse = ctx.saved_tensors
        k, v = key, value
        dq = torch.zeros_like(query)
        dk, dv = torch.zeros_like(key), torch.zeros_like(value)
        for i in range(dist.get_world_size(ctx.group)):
            gq, gk, gv = _attention_backward_op(ctx, grad_out, query, k, v, out, lse)
            dq = dq + gq
            dk, dv = dk + gk, dv + gv
            k, v = _rotate(k, ctx.group), _rotate(v, ctx.group)
            dk, dv = _rotate(dk, ctx.group), _rotate(dv, ctx.group)
        return dq, dk, dv, None


def ring_attention(query, key, value, group):
    # [b, heads, s/cp, d]
    return TemplatedRingAttention.apply(query, key, value, group)
