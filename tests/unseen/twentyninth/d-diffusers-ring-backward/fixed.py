"""Ring attention (not causal): key/value blocks travel around the context-parallel group."""
import torch
import torch.distributed as dist


def _shift(tensor, group):
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    received = torch.empty_like(tensor)
    ops = [
        dist.P2POp(dist.isend, tensor, dist.get_global_rank(group, (rank + 1) % world), group),
        dist.P2POp(dist.irecv, received, dist.get_global_rank(group, (rank - 1) % world), group),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return received


def _forward_op(query, key, value, scale):
    scores = query @ key.transpose(-1, -2) * scale
    lse = torch.logsumexp(scores, dim=-1, keepdim=True)
    return torch.exp(scores - lse) @ value, lse


def _backward_op(grad_out, query, key, value, out, lse, scale):
    p = torch.exp(query @ key.transpose(-1, -2) * scale - lse)
    grad_p = grad_out @ value.transpose(-1, -2)
    grad_s = p * (grad_p - (grad_out * out).sum(dim=-1, keepdim=True)) * scale
    return grad_s @ key, grad_s.transpose(-1, -2) @ query, p.transpose(-1, -2) @ grad_out


class RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, scale, group):
        ctx.scale, ctx.group = scale, group
        kv, out, lse = torch.stack([key, value]), None, None
        for _ in range(dist.get_world_size(group)):
            block_out, block_lse = _forward_op(query, kv[0], kv[1], scale)
            if out is None:
                out, lse = block_out, block_lse
            else:
                new_lse = torch.logaddexp(lse, block_lse)
                out = out * torch.exp(lse - new_lse) + block_out * torch.exp(block_lse - new_lse)
                lse = new_lse
            kv = _shift(kv, group)
        ctx.save_for_backward(query, key, value, out, lse)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        query, key, value, out, lse = ctx.saved_tensors
        kv = torch.stack([key, value])
        grad_query, grad_kv = torch.zeros_like(query), torch.zeros_like(kv)
        for _ in range(dist.get_world_size(ctx.group)):
            block_key, block_value = kv[0], kv[1]
            dq, dk, dv = _backward_op(grad_out, query, block_key, block_value, out, lse, ctx.scale)
            grad_query = grad_query + dq
            grad_kv = grad_kv + torch.stack([dk, dv])
            kv, grad_kv = _shift(kv, ctx.group), _shift(grad_kv, ctx.group)
        return grad_query, grad_kv[0], grad_kv[1], None, None
