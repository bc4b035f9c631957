"""Ring attention for a diffusion transformer (no mask), layout (B, H, S, D).

After huggingface/diffusers issue #14265 and PR #14274
(src/diffusers/models/attention_dispatch.py `TemplatedRingAttention`).
"""
import torch
import torch.distributed as dist


def rotate(x, group):
    """Send to the next rank of the ring, receive from the previous one."""
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    if world == 1:
        return x
    x, received = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    ops = [
        dist.P2POp(dist.isend, x, dist.get_global_rank(group, (rank + 1) % world), group),
        dist.P2POp(dist.irecv, received, dist.get_global_rank(group, (rank - 1) % world), group),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return received


def block_forward(query, key, value, scale):
    scores = (query @ key.transpose(-1, -2)).float() * scale
    lse = torch.logsumexp(scores, dim=-1, keepdim=True)
    out = torch.exp(scores - lse) @ value.float()
    return out, lse


def block_backward(grad_out, query, key, value, out, lse, scale):
    """Gradients of one key/value block; out and lse belong to the whole sequence."""
    grad_out = grad_out.float()
    probs = torch.exp((query @ key.transpose(-1, -2)).float() * scale - lse)
    grad_value = probs.transpose(-1, -2) @ grad_out
    grad_probs = grad_out @ value.float().transpose(-1, -2)
    delta = (grad_out * out).sum(dim=-1, keepdim=True)
    grad_scores = probs * (grad_probs - delta) * scale
    return grad_scores @ key.float(), grad_scores.transpose(-1, -2) @ query.float(), grad_value


class RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, group):
        scale = query.size(-1) ** -0.5
        world = dist.get_world_size(group)
        kv = torch.stack([key, value])
        out = lse = None
        for i in range(world):
            key_i, value_i = kv.unbind(0)
            block_out, block_lse = block_forward(query, key_i, value_i, scale)
            if out is None:
                out, lse = block_out, block_lse
            else:
                new_lse = torch.logaddexp(lse, block_lse)
                out = torch.exp(lse - new_lse) * out + torch.exp(block_lse - new_lse) * block_out
                lse = new_lse
            if i + 1 < world:
                kv = rotate(kv, group)
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.group, ctx.scale = group, scale
        return out.to(query.dtype)

    @staticmethod
    def backward(ctx, grad_out):
        query, key, value, out, lse = ctx.saved_tensors
        world = dist.get_world_size(ctx.group)
        grad_query = torch.zeros_like(query, dtype=torch.float32)
        # the gradient of a block travels with the block and is back home after a full turn
        kv = torch.stack([key, value])
        grad_kv = torch.zeros_like(kv, dtype=torch.float32)
        for i in range(world):
            key_i, value_i = kv.unbind(0)
            dq, dk, dv = block_backward(
                grad_out, query, key_i, value_i, out, lse, ctx.scale
            )
            grad_query += dq
            grad_kv += torch.stack([dk, dv])
            if i + 1 < world:
                kv = rotate(kv, ctx.group)
            grad_kv = rotate(grad_kv, ctx.group)
        grad_key, grad_value = grad_kv.unbind(0)
        return grad_query.to(query.dtype), grad_key.to(key.dtype), grad_value.to(value.dtype), None
