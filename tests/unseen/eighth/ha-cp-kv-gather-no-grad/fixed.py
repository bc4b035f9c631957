"""Context-parallel causal attention that gathers keys and values over the sequence."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.distributed._functional_collectives import all_gather_tensor_autograd


class AllGatherKVAttention(nn.Module):
    def __init__(self, dim, n_heads, cp_group):
        super().__init__()
        self.n_heads, self.cp_group = n_heads, cp_group
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wkv = nn.Linear(dim, 2 * dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)

    def _heads(self, t):
        return t.view(*t.shape[:2], self.n_heads, -1).permute(1, 2, 0, 3)

    def forward(self, x):
        # x: [seq / cp, batch, dim], contiguous chunk of this rank
        s, cp = x.shape[0], self.cp_group.size()
        kv_local = self.wkv(x)
        kv = all_gather_tensor_autograd(kv_local, gather_dim=0, group=self.cp_group)
        k, v = kv.chunk(2, dim=-1)
        pos = torch.arange(cp * s, device=x.device)
        q_pos = pos[self.cp_group.rank() * s:][:s]
        mask = q_pos[:, None] >= pos[None, :]
        out = F.scaled_dot_product_attention(
            self._heads(self.wq(x)), self._heads(k), self._heads(v), attn_mask=mask
        )
        return self.wo(out.permute(2, 0, 1, 3).flatten(2))
