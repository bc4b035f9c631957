"""Ulysses attention with fewer key/value heads than sequence-parallel ranks.

Source: grouped-query attention under Ulysses as in verl and xtuner (from memory). Query heads are
grouped in runs: head i uses key head i // (heads / kv_heads). Repeating the whole list of key heads
instead of each head in place sends most ranks the keys of another group.
"""
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn
import torch.nn.functional as F


def seq_to_head(x, group):
    """[b, s / p, h, d] -> [b, s, h / p, d]"""
    world = dist.get_world_size(group)
    b, s, h, d = x.shape
    x = x.reshape(b, s, world, h // world, d).permute(2, 0, 1, 3, 4).contiguous()
    out = dist_nn.all_to_all_single(torch.empty_like(x), x, group=group)
    return out.permute(1, 0, 2, 3, 4).reshape(b, world * s, h // world, d)


def head_to_seq(x, group):
    """[b, s, h / p, d] -> [b, s / p, h, d]"""
    world = dist.get_world_size(group)
    b, s, h, d = x.shape
    x = x.reshape(b, world, s // world, h, d).transpose(0, 1).contiguous()
    out = dist_nn.all_to_all_single(torch.empty_like(x), x, group=group)
    return out.permute(1, 2, 0, 3, 4).reshape(b, s // world, world * h, d)


def ulysses_attention(q, k, v, group):
    # q: [b, s / p, heads, d]; k, v: [b, s / p, kv_heads, d]
    world, kv_heads = dist.get_world_size(group), k.size(2)
    if kv_heads < world:
        assert world % kv_heads == 0
        repeats = world // kv_heads
        k = k.repeat(1, 1, repeats, 1)  # BUG
        v = v.repeat(1, 1, repeats, 1)  # BUG
    q, k, v = (seq_to_head(t, group) for t in (q, k, v))
    local_groups = q.size(2) // k.size(2)
    k = k.repeat_interleave(local_groups, dim=2)
    v = v.repeat_interleave(local_groups, dim=2)
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return head_to_seq(out.transpose(1, 2).contiguous(), group)
