"""Grouped-query attention with fewer kv heads than ranks (own parallel layers, nanotron style)."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist


class CopyToTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class ReduceFromTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class CausalSelfAttention(nn.Module):
    def __init__(self, config, parallel_context):
        super().__init__()
        self.tp_pg = parallel_context.tp_pg
        self.tp_size = dist.get_world_size(self.tp_pg)
        self.d_qk = config.hidden_size // config.num_heads
        self.n_local_q = config.num_heads // self.tp_size
        self.q_weight = nn.Parameter(torch.empty(self.n_local_q * self.d_qk, config.hidden_size))
        # one kv head, the same on each rank
        self.kv_weight = nn.Parameter(torch.empty(2 * self.d_qk, config.hidden_size))
        self.o_weight = nn.Parameter(torch.empty(config.hidden_size, self.n_local_q * self.d_qk))

    def forward(self, hidden):
        b, s, _ = hidden.shape
        x = CopyToTP.apply(hidden, self.tp_pg)
        q = F.linear(x, self.q_weight).view(b, s, self.n_local_q, self.d_qk).transpose(1, 2)
        kv = F.linear(x, CopyToTP.apply(self.kv_weight, self.tp_pg))
        k, v = kv.view(b, s, 1, 2 * self.d_qk).transpose(1, 2).chunk(2, dim=-1)
        k, v = k.expand(-1, self.n_local_q, -1, -1), v.expand(-1, self.n_local_q, -1, -1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out = out.transpose(1, 2).reshape(b, s, -1)
        return ReduceFromTP.apply(F.linear(out, self.o_weight), self.tp_pg)
