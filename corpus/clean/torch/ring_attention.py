"""Ring attention: blocks of keys and values go around the ring, partial results are merged with their log-sum-exp."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Ring:
    def __init__(self, group):
        self.group = group
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)
        self.to = dist.get_global_rank(group, (self.rank + 1) % self.size)
        self.source = dist.get_global_rank(group, (self.rank - 1) % self.size)
        self.ops, self.requests = [], None

    def exchange(self, tensor):
        out = torch.empty_like(tensor)
        self.ops.append(dist.P2POp(dist.isend, tensor.contiguous(), self.to, group=self.group))
        self.ops.append(dist.P2POp(dist.irecv, out, self.source, group=self.group))
        return out

    def commit(self):
        self.requests = dist.batch_isend_irecv(self.ops)

    def wait(self):
        for request in self.requests:
            request.wait()
        self.requests, self.ops = None, []


def block(q, k, v, scale, causal):
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * scale
    if causal:
        mask = torch.ones(q.size(2), k.size(2), dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(mask, float("-inf"))
    lse = torch.logsumexp(scores, dim=-1, keepdim=True)
    return torch.einsum("bhqk,bhkd->bhqd", torch.exp(scores - lse), v), lse


def merge(out, lse, block_out, block_lse):
    if out is None:
        return block_out.float(), block_lse
    out = out - torch.sigmoid(block_lse - lse) * (out - block_out)
    lse = lse - F.logsigmoid(lse - block_lse)
    return out, lse


class RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, scale, group):
        ring = Ring(group)
        out, lse = None, None
        kept_k, kept_v = k, v
        for step in range(ring.size):
            if step + 1 != ring.size:
                next_k, next_v = ring.exchange(k), ring.exchange(v)
                ring.commit()
            if step <= ring.rank:
                block_out, block_lse = block(q, k, v, scale, causal=step == 0)
                out, lse = merge(out, lse, block_out, block_lse)
            if step + 1 != ring.size:
                ring.wait()
                k, v = next_k, next_v
        out = out.to(q.dtype)
        ctx.save_for_backward(q, kept_k, kept_v, out, lse)
        ctx.scale, ctx.group = scale, group
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, out, lse = ctx.saved_tensors
        ring, grads = Ring(ctx.group), Ring(ctx.group)
        grad_q, grad_k, grad_v = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        delta = (grad * out).sum(dim=-1, keepdim=True)
        for step in range(ring.size):
            if step <= ring.rank:
                scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * ctx.scale
                if step == 0:
                    mask = torch.ones(q.size(2), k.size(2), dtype=torch.bool, device=q.device).triu(1)
                    scores = scores.masked_fill(mask, float("-inf"))
                probs = torch.exp(scores - lse)
                grad_v = grad_v + torch.einsum("bhqk,bhqd->bhkd", probs, grad)
                grad_s = probs * (torch.einsum("bhqd,bhkd->bhqk", grad, v) - delta) * ctx.scale
                grad_q = grad_q + torch.einsum("bhqk,bhkd->bhqd", grad_s, k)
                grad_k = grad_k + torch.einsum("bhqk,bhqd->bhkd", grad_s, q)
            k, v = ring.exchange(k), ring.exchange(v)
            ring.commit()
            grad_k, grad_v = grads.exchange(grad_k), grads.exchange(grad_v)
            grads.commit()
            ring.wait()
            grads.wait()
        return grad_q, grad_k, grad_v, None, None


class Attention(nn.Module):
    def __init__(self, hidden, heads, group):
        super().__init__()
        self.heads, self.group = heads, group
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x):
        batch, sequence, hidden = x.shape
        qkv = self.qkv(x).view(batch, sequence, 3, self.heads, hidden // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        out = RingAttention.apply(q, k, v, (hidden // self.heads) ** -0.5, self.group)
        return self.out(out.transpose(1, 2).reshape(batch, sequence, hidden))
