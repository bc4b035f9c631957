"""Attention with head/sequence exchange over a sequence-parallel group."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


def _heads_to_sequence(x, group):
    """[b, s/p, h, d] -> [b, s, h/p, d]"""
    p = dist.get_world_size(group)
    b, s_local, h, d = x.shape
    inp = x.reshape(b, s_local, p, h // p, d).permute(2, 0, 1, 3, 4).contiguous()
    out = torch.empty_like(inp)
    dist.all_to_all_single(out, inp, group=group)
    return out.reshape(b, p * s_local, h // p, d)  # BUG


def _sequence_to_heads(x, group):
    """[b, s, h/p, d] -> [b, s/p, h, d]"""
    p = dist.get_world_size(group)
    b, s, h_local, d = x.shape
    inp = x.reshape(b, p, s // p, h_local, d).transpose(0, 1).contiguous()
    out = torch.empty_like(inp)
    dist.all_to_all_single(out, inp, group=group)
    return out.permute(1, 2, 0, 3, 4).reshape(b, s // p, p * h_local, d)


class _SeqAllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, x, to_sequence):
        ctx.group, ctx.to_sequence = group, to_sequence
        return _heads_to_sequence(x, group) if to_sequence else _sequence_to_heads(x, group)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        if ctx.to_sequence:
            return None, _sequence_to_heads(grad, ctx.group), None
        return None, _heads_to_sequence(grad, ctx.group), None


class DistributedAttention(nn.Module):
    def __init__(self, hidden_size, num_heads, sp_group):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = hidden_size // num_heads
        self.sp_group = sp_group
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size, bias=False)
        self.dense = nn.Linear(hidden_size, hidden_size, bias=False)

    def forward(self, hidden_states):
        b, s_local, hidden = hidden_states.shape
        qkv = self.qkv(hidden_states).view(b, s_local, 3, self.num_heads, self.head_dim)
        q, k, v = (_SeqAllToAll.apply(self.sp_group, t, True) for t in qkv.unbind(dim=2))
        context = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
        ).transpose(1, 2)
        context = _SeqAllToAll.apply(self.sp_group, context, False)
        return self.dense(context.reshape(b, s_local, hidden))


def training_step(model, batch, optimizer, dp_sp_group):
    """batch holds this rank's part of the sequence; labels are shifted already."""
    logits = model(batch["input_ids"], batch["position_ids"])
    loss_sum = F.cross_entropy(
        logits.flatten(0, 1).float(), batch["labels"].flatten(), ignore_index=-100, reduction="sum"
    )
    tokens = (batch["labels"] != -100).sum()
    dist.all_reduce(tokens, group=dp_sp_group)
    loss = loss_sum / tokens
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM, group=dp_sp_group)
    optimizer.step()
    optimizer.zero_grad()
    loss = loss.detach()
    dist.all_reduce(loss, group=dp_sp_group)
    return loss
