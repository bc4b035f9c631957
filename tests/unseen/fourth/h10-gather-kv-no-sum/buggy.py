"""Context parallel attention: keys and values of all ranks are gathered, queries stay."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class AllGatherSeq(torch.autograd.Function):
    """[b, h, s / cp, d] -> [b, h, s, d]"""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        ctx.rank = dist.get_rank(group)
        ctx.local = x.size(2)
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim=2)

    @staticmethod
    def backward(ctx, grad):
        return grad.narrow(2, ctx.rank * ctx.local, ctx.local).contiguous(), None  # BUG


class ContextParallelAttention(nn.Module):
    def __init__(self, config, cp_group):
        super().__init__()
        self.cp_group = cp_group
        self.n_head, self.head_dim = config.n_head, config.n_embd // config.n_head
        self.qkv = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.proj = nn.Linear(config.n_embd, config.n_embd)

    def _mask(self, s, device):
        rank = dist.get_rank(self.cp_group)
        total = s * dist.get_world_size(self.cp_group)
        pos = torch.arange(s, device=device) + rank * s
        return pos[:, None] >= torch.arange(total, device=device)[None]

    def forward(self, x):
        b, s, c = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.n_head, self.head_dim).permute(2, 0, 3, 1, 4)
        k = AllGatherSeq.apply(k, self.cp_group)
        v = AllGatherSeq.apply(v, self.cp_group)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self._mask(s, x.device))
        return self.proj(y.transpose(1, 2).reshape(b, s, c))
