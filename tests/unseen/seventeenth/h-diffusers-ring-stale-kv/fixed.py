# Source: huggingface/diffusers issue #14265, PR #14274 (commit 192cf685ec), models/attention_dispatch.py
# In the backward of ring attention the key/value chunks rotate through local variables, but the
# backward op reads ctx.saved_tensors, which hold the chunk of the first step. All ring steps
# compute with the local keys and values.
# Repair: hand the current chunk (and the merged out and lse) to the backward op.
import torch
import torch.distributed._functional_collectives as funcol


def _native_backward_op(ctx, grad_out, query=None, key=None, value=None, out=None, lse=None):
    saved_query, saved_key, saved_value = ctx.saved_tensors
    query = saved_query if query is None else query
    key = saved_key if key is None else key
    value = saved_value if value is None else value
    out, lse = (ctx.ring_out, ctx.ring_lse) if out is None else (out, lse)
    # layout [B, H, S, D]; lse [B, H, S]
    probs = torch.exp(query @ key.transpose(-2, -1) * ctx.scale - lse.unsqueeze(-1))
    grad_value = probs.transpose(-2, -1) @ grad_out
    delta = (grad_out * out).sum(-1, keepdim=True)
    grad_scores = probs * (grad_out @ value.transpose(-2, -1) - delta) * ctx.scale
    return grad_scores @ key, grad_scores.transpose(-2, -1) @ query, grad_value


class TemplatedRingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, scale, forward_op, ring_mesh):
        ctx.scale, ctx.ring_mesh = scale, ring_mesh
        ctx.save_for_backward(query, key, value)
        out, lse = forward_op(query, key, value, scale, ring_mesh)
        ctx.ring_out, ctx.ring_lse = out.detach(), lse.detach()
        return out

    @staticmethod
    def backward(ctx, grad_out):
        group = ctx.ring_mesh.get_group()
        rank, world_size = ctx.ring_mesh.get_local_rank(), ctx.ring_mesh.size()
        next_rank = (rank + 1) % world_size
        dst_ranks = [(r - 1) % world_size for r in range(world_size)]

        query, key, value = ctx.saved_tensors
        grad_query = torch.zeros_like(query)
        grad_kv = torch.zeros(key.numel() + value.numel(), dtype=grad_out.dtype, device=grad_out.device)
        kv_buffer = torch.cat([key.flatten(), value.flatten()]).contiguous()
        kv_buffer = funcol.all_gather_tensor(kv_buffer, gather_dim=0, group=group).chunk(world_size)

        for i in range(world_size):
            if i > 0:
                kv = kv_buffer[next_rank]
                key = kv[:key.numel()].reshape_as(key)
                value = kv[key.numel():].reshape_as(value)
                next_rank = (next_rank + 1) % world_size
                grad_kv = funcol.wait_tensor(funcol.permute_tensor(grad_kv, dst_ranks, group=group))
            grad_query_op, grad_key_op, grad_value_op = _native_backward_op(
                ctx, grad_out, query=query, key=key, value=value, out=ctx.ring_out, lse=ctx.ring_lse
            )
            grad_query += grad_query_op
            grad_kv = grad_kv + torch.cat([grad_key_op.flatten(), grad_value_op.flatten()])

        # one more rotation brings each chunk's gradient home
        grad_kv = funcol.wait_tensor(funcol.permute_tensor(grad_kv, dst_ranks, group=group))
        grad_key = grad_kv[:key.numel()].reshape_as(key)
        grad_value = grad_kv[key.numel():].reshape_as(value)
        return grad_query, grad_key, grad_value, None, None, None
