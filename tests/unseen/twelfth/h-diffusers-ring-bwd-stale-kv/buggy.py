"""Ring attention (non-causal) with gathered key/value blocks."""
import torch
import torch.distributed as dist


def block_forward(q, k, v, scale):
    s = q @ k.transpose(-1, -2) * scale
    lse = torch.logsumexp(s, dim=-1)
    return torch.exp(s - lse.unsqueeze(-1)) @ v, lse


def block_backward(dout, q, k, v, out, lse, scale):
    p = torch.exp(q @ k.transpose(-1, -2) * scale - lse.unsqueeze(-1))
    ds = p * (dout @ v.transpose(-1, -2) - (dout * out).sum(-1, keepdim=True)) * scale
    return ds @ k, ds.transpose(-1, -2) @ q, p.transpose(-1, -2) @ dout


def gather_kv(k, v, group):
    kv = torch.stack([k, v])
    blocks = torch.empty(group.size(), *kv.shape, dtype=kv.dtype, device=kv.device)
    dist.all_gather_into_tensor(blocks, kv, group=group)
    return blocks


class RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, scale, group):
        rank, world = dist.get_rank(group), group.size()
        blocks = gather_kv(k, v, group)
        out, lse = block_forward(q, k, v, scale)
        for i in range(1, world):
            k_i, v_i = blocks[(rank - i) % world]
            out_i, lse_i = block_forward(q, k_i, v_i, scale)
            new_lse = torch.logaddexp(lse, lse_i)
            out = torch.exp(lse - new_lse).unsqueeze(-1) * out + torch.exp(lse_i - new_lse).unsqueeze(-1) * out_i
            lse = new_lse
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.scale, ctx.group = scale, group
        return out

    @staticmethod
    def backward(ctx, dout):
        q, k, v, out, lse = ctx.saved_tensors
        rank, world = dist.get_rank(ctx.group), ctx.group.size()
        blocks = gather_kv(k, v, ctx.group)
        dq, dblocks = torch.zeros_like(q), torch.zeros_like(blocks)
        for i in range(world):
            src = (rank - i) % world
            k_i, v_i = blocks[src]
            dq_i, dk_i, dv_i = block_backward(dout, q, k, v, out, lse, ctx.scale)  # BUG: always the local keys and values
            dq += dq_i
            dblocks[src, 0], dblocks[src, 1] = dk_i, dv_i
        dkv = torch.empty_like(blocks[0])
        dist.reduce_scatter_tensor(dkv, dblocks, group=ctx.group)
        return dq, dkv[0], dkv[1], None, None
