# Reduced from diffusers models/attention_dispatch.py TemplatedRingAttention (huggingface/diffusers
# issue 14265, read). The backward walks over the key/value blocks of all ring ranks, the per-block
# gradient is left to the backend's backward op.
# What happens: each ring step works with the rank's own block, gradients are silently wrong for
# ring_degree > 1.
import torch
import torch.distributed._functional_collectives as funcol
from flash_attn.flash_attn_interface import _wrapped_flash_attn_backward


def _flash_attention_backward_op(ctx, grad_out):
    query, key, value, out, lse = ctx.saved_tensors
    grad_query, grad_key, grad_value = (torch.empty_like(t) for t in (query, key, value))
    _wrapped_flash_attn_backward(
        grad_out, query, key, value, out, lse, grad_query, grad_key, grad_value,
        0.0, ctx.scale, False, -1, -1, 0.0, None, False, None,
    )
    return grad_query, grad_key, grad_value


class TemplatedRingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, ring_forward, scale, ring_mesh):
        # ring_forward merges the per-block outputs with their log-sum-exp
        out, lse = ring_forward(query, key, value, scale, ring_mesh)
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.scale, ctx.ring_mesh = scale, ring_mesh
        return out

    @staticmethod
    def backward(ctx, grad_out):
        group = ctx.ring_mesh.get_group()
        rank, world_size = ctx.ring_mesh.get_local_rank(), ctx.ring_mesh.size()
        prev_ranks = [world_size - 1] + list(range(world_size - 1))

        query, key, value, _, _ = ctx.saved_tensors
        key_numel, key_shape, value_shape = key.numel(), key.shape, value.shape
        kv_buffer = torch.cat([key.flatten(), value.flatten()]).contiguous()
        kv_buffer = funcol.all_gather_tensor(kv_buffer, gather_dim=0, group=group).chunk(world_size)

        grad_query = torch.zeros_like(query, dtype=torch.float32)
        grad_kv = torch.zeros(kv_buffer[0].numel(), dtype=torch.float32, device=query.device)
        for i in range(world_size):
            kv = kv_buffer[(rank + i) % world_size]
            key = kv[:key_numel].reshape(key_shape)
            value = kv[key_numel:].reshape(value_shape)
            dq, dk, dv = _flash_attention_backward_op(ctx, grad_out)  # BUG
            grad_query += dq
            grad_kv += torch.cat([dk.flatten(), dv.flatten()])
            # the accumulator of a block follows it around the ring and ends at its owner
            grad_kv = funcol.wait_tensor(funcol.permute_tensor(grad_kv, prev_ranks, group))

        grad_key = grad_kv[:key_numel].reshape(key_shape).to(grad_out.dtype)
        grad_value = grad_kv[key_numel:].reshape(value_shape).to(grad_out.dtype)
        return grad_query.to(grad_out.dtype), grad_key, grad_value, None, None, None
