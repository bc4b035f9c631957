"""Ring attention over all-gathered keys and values (llama3 style)."""
# thread: PrimeIntellect-ai/prime-rl#3570
import torch
import torch.distributed as dist
from flash_attn.flash_attn_interface import _flash_attn_varlen_backward, _flash_attn_varlen_forward


def _gather_kv(t, group):
    world = dist.get_world_size(group)
    out = t.new_empty((world * t.size(0), *t.shape[1:]))
    dist.all_gather_into_tensor(out, t.contiguous(), group=group)
    return out


class RingAttention(torch.autograd.Function):
    """q, k, v: [local tokens, heads, head_dim]; k and v may be views of a fused projection
    transposed from [heads, tokens, head_dim]."""

    @staticmethod
    def forward(ctx, q, k, v, cu_q, cu_k, max_q, max_k, local_k_slice, scale, group):
        full_k, full_v = _gather_kv(k, group), _gather_kv(v, group)
        out, lse, _, _ = _flash_attn_varlen_forward(
            q, full_k[local_k_slice], full_v[local_k_slice], cu_q, cu_k, max_q, max_k,
            dropout_p=0.0, softmax_scale=scale, causal=True,
        )
        ctx.save_for_backward(q, k, v, out, lse, cu_q, cu_k)
        ctx.args = max_q, max_k, local_k_slice, scale, group
        return out

    @staticmethod
    def backward(ctx, dout):
        q, k, v, out, lse, cu_q, cu_k = ctx.saved_tensors
        max_q, max_k, local_k_slice, scale, group = ctx.args
        full_k, full_v = _gather_kv(k, group), _gather_kv(v, group)
        full_dk, full_dv = torch.zeros_like(full_k), torch.zeros_like(full_v)
        dq = torch.empty_like(q)
        _flash_attn_varlen_backward(
            dout.contiguous(), q, full_k[local_k_slice], full_v[local_k_slice], out, lse,
            dq, full_dk[local_k_slice], full_dv[local_k_slice], cu_q, cu_k, max_q, max_k,
            dropout_p=0.0, softmax_scale=scale, causal=True,
        )
        dk, dv = torch.empty_like(k), torch.empty_like(v)  # BUG: inherits the transposed strides, rows land in the wrong place
        dist.reduce_scatter_single(dk, full_dk, op=dist.ReduceOp.SUM, group=group)
        dist.reduce_scatter_single(dv, full_dv, op=dist.ReduceOp.SUM, group=group)
        return dq, dk, dv, None, None, None, None, None, None, None


def ring_attention(qkv, num_heads, num_kv_heads, head_dim, meta, group):
    """qkv: [num_heads + 2 * num_kv_heads, local tokens, head_dim]"""
    q, k, v = qkv.split([num_heads, num_kv_heads, num_kv_heads], dim=0)
    q, k, v = (t.transpose(0, 1) for t in (q, k, v))
    return RingAttention.apply(
        q.contiguous(), k, v, meta.cu_q, meta.cu_k, meta.max_q, meta.max_k,
        meta.local_k_slice, head_dim**-0.5, group,
    )
