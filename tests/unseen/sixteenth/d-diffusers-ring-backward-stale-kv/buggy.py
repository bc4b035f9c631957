# huggingface/diffusers issue 14265, pull request 14274 (commit 192cf685)
# The ring backward rotates key and value in local variables, but the backward op reads the chunk saved at
# iteration 0 from ctx.saved_tensors, so every iteration differentiates against the local key and value.
"""Ring attention over sequence shards, layout (B, S, H, D), no causal mask."""
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.nn.functional as F


def attention_forward_op(query, key, value, scale):
    scores = torch.einsum("bqhd,bkhd->bhqk", query, key) * scale
    lse = torch.logsumexp(scores, dim=-1, keepdim=True)
    out = torch.einsum("bhqk,bkhd->bqhd", torch.exp(scores - lse), value)
    return out, lse.transpose(1, 2)


def attention_backward_op(ctx, grad_out, key=None, value=None):
    query, saved_key, saved_value, out, lse = ctx.saved_tensors
    key = saved_key if key is None else key
    value = saved_value if value is None else value
    probs = torch.exp(torch.einsum("bqhd,bkhd->bhqk", query, key) * ctx.scale - lse.transpose(1, 2))
    grad_value = torch.einsum("bhqk,bqhd->bkhd", probs, grad_out)
    delta = (grad_out * out).sum(dim=-1, keepdim=True).transpose(1, 2)
    grad_scores = probs * (torch.einsum("bqhd,bkhd->bhqk", grad_out, value) - delta) * ctx.scale
    grad_query = torch.einsum("bhqk,bkhd->bqhd", grad_scores, key)
    return grad_query, torch.einsum("bhqk,bqhd->bkhd", grad_scores, query), grad_value


def gather_kv(key, value, group):
    kv = torch.stack([key, value]).contiguous()
    parts = [torch.empty_like(kv) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, kv, group=group)
    return parts


class TemplatedRingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, scale, group):
        ctx.group, ctx.scale = group, scale
        rank, world_size = dist.get_rank(group), dist.get_world_size(group)
        kv_buffer = gather_kv(key, value, group)
        out, lse = attention_forward_op(query, key, value, scale)
        for i in range(1, world_size):
            k, v = kv_buffer[(rank + i) % world_size]
            block_out, block_lse = attention_forward_op(query, k, v, scale)
            out = out - torch.sigmoid(block_lse - lse) * (out - block_out)
            lse = lse - F.logsigmoid(lse - block_lse)
        ctx.save_for_backward(query, key, value, out, lse)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        query, key, value, *_ = ctx.saved_tensors
        rank, world_size = dist.get_rank(ctx.group), dist.get_world_size(ctx.group)
        prev_ranks = [(r - 1) % world_size for r in range(world_size)]
        kv_buffer = gather_kv(key, value, ctx.group)
        grad_query, grad_kv = torch.zeros_like(query), torch.zeros_like(kv_buffer[0])
        for i in range(world_size):
            key, value = kv_buffer[(rank + i) % world_size]
            dq, dk, dv = attention_backward_op(ctx, grad_out)  # BUG
            grad_query += dq
            grad_kv = grad_kv + torch.stack([dk, dv])
            flat = funcol.permute_tensor(grad_kv.flatten(), prev_ranks, ctx.group)
            grad_kv = funcol.wait_tensor(flat).view_as(kv_buffer[0])
        return grad_query, grad_kv[0], grad_kv[1], None, None
