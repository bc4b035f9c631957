"""Gather keys and values of all context-parallel ranks in one collective."""
import torch
import torch.distributed as dist
from flash_attn import flash_attn_func


class GatherKV(torch.autograd.Function):
    @staticmethod
    def forward(ctx, k, v, group):
        # k, v: [s/cp, b, heads, dim]
        ctx.group, ctx.world, ctx.shape = group, dist.get_world_size(group), k.shape
        kv = torch.stack([k, v])
        out = torch.empty(ctx.world * 2, *k.shape, dtype=kv.dtype, device=kv.device)
        dist.all_gather_into_tensor(out, kv, group=group)
        out = out.view(ctx.world, 2, *k.shape)
        return out[:, 0].flatten(0, 1), out[:, 1].flatten(0, 1)

    @staticmethod
    def backward(ctx, grad_k, grad_v):
        grad_k = grad_k.reshape(ctx.world, *ctx.shape)
        grad_v = grad_v.reshape(ctx.world, *ctx.shape)
        packed = torch.stack([grad_v, grad_k], dim=1).flatten(0, 1)  # BUG
        out = torch.empty(2, *ctx.shape, dtype=packed.dtype, device=packed.device)
        dist.reduce_scatter_tensor(out, packed, group=ctx.group)
        return out[0], out[1], None


def attention(q, k, v, group):
    # bidirectional: no mask
    k, v = GatherKV.apply(k, v, group)
    q, k, v = (t.transpose(0, 1) for t in (q, k, v))
    return flash_attn_func(q, k, v, causal=False).transpose(0, 1)
