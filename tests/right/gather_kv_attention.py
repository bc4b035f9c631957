"""Context-parallel attention: keys and values are gathered in forward, their gradients reduce-scattered."""
import torch
import torch.distributed as dist


def _gather_seq(x, group):
    n = dist.get_world_size(group)
    x = x.transpose(0, 1).contiguous()  # [s, b, h, d]
    out = x.new_empty((n * x.shape[0], *x.shape[1:]))
    dist.all_gather_into_tensor(out, x, group=group)
    return out.transpose(0, 1)


def _scatter_sum_seq(x, group):
    n = dist.get_world_size(group)
    x = x.transpose(0, 1).contiguous()
    out = x.new_empty((x.shape[0] // n, *x.shape[1:]))
    dist.reduce_scatter_tensor(out, x, group=group)
    return out.transpose(0, 1).contiguous()


class GatherKV(torch.autograd.Function):
    @staticmethod
    def forward(ctx, k, v, group):
        ctx.group = group
        return _gather_seq(k, group), _gather_seq(v, group)

    @staticmethod
    def backward(ctx, dk, dv):
        return _scatter_sum_seq(dk, ctx.group), _scatter_sum_seq(dv, ctx.group), None


def causal_mask(sq, sk, start, device):
    q = torch.arange(sq, device=device) + start
    k = torch.arange(sk, device=device)
    return q[:, None] >= k[None, :]


class CPAttention(torch.nn.Module):
    def __init__(self, dim, heads, cp_group):
        super().__init__()
        self.heads = heads
        self.cp_group = cp_group
        self.qkv = torch.nn.Linear(dim, 3 * dim, bias=False)
        self.out = torch.nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        # x: [b, s/cp, dim]
        b, s, _ = x.shape
        q, k, v = (t.view(b, s, self.heads, -1) for t in self.qkv(x).chunk(3, dim=-1))
        k, v = GatherKV.apply(k, v, self.cp_group)
        start = dist.get_rank(self.cp_group) * s
        mask = causal_mask(s, k.shape[1], start, x.device)
        o = torch.nn.functional.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask
        )
        return self.out(o.transpose(1, 2).reshape(b, s, -1))
