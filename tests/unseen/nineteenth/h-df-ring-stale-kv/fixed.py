"""Ring attention of a diffusion transformer. huggingface/diffusers, issue #14265 (attention_dispatch.py)."""
import torch
import torch.distributed as dist


def block_forward(q, k, v, scale):
    scores = q @ k.transpose(-1, -2) * scale
    lse = torch.logsumexp(scores, dim=-1, keepdim=True)
    return torch.exp(scores - lse) @ v, lse


def block_backward(grad_out, q, k, v, out, lse, scale):
    p = torch.exp(q @ k.transpose(-1, -2) * scale - lse)
    dv = p.transpose(-1, -2) @ grad_out
    dp = grad_out @ v.transpose(-1, -2)
    ds = p * (dp - (grad_out * out).sum(-1, keepdim=True)) * scale
    return ds @ k, ds.transpose(-1, -2) @ q, dv


def gather_kv(k, v, group):
    kv = torch.stack([k, v]).contiguous()
    chunks = [torch.empty_like(kv) for _ in range(dist.get_world_size(group))]
    dist.all_gather(chunks, kv, group=group)
    return chunks


class TemplatedRingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, scale, group):
        # [batch, heads, seq / world, dim]
        rank, world = dist.get_rank(group), dist.get_world_size(group)
        kv = gather_kv(key, value, group)
        out, lse = block_forward(query, key, value, scale)
        for i in range(1, world):
            k, v = kv[(rank + i) % world]
            o, l = block_forward(query, k, v, scale)
            new_lse = torch.logaddexp(lse, l)
            out = out * torch.exp(lse - new_lse) + o * torch.exp(l - new_lse)
            lse = new_lse
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.scale, ctx.group = scale, group
        return out

    @staticmethod
    def backward(ctx, grad_out):
        query, key, value, out, lse = ctx.saved_tensors
        rank, world = dist.get_rank(ctx.group), dist.get_world_size(ctx.group)
        kv = gather_kv(key, value, ctx.group)
        grad_query = torch.zeros_like(query)
        grad_kv = torch.zeros(world, *kv[0].shape, dtype=kv[0].dtype, device=kv[0].device)
        for i in range(world):
            src = (rank + i) % world
            k, v = kv[src]
            dq, dk, dv = block_backward(grad_out, query, k, v, out, lse, ctx.scale)
            grad_query += dq
            grad_kv[src, 0], grad_kv[src, 1] = dk, dv
        local = torch.empty_like(kv[0])
        dist.reduce_scatter_tensor(local, grad_kv.flatten(0, 1), group=ctx.group)
        return grad_query, local[0], local[1], None, None
