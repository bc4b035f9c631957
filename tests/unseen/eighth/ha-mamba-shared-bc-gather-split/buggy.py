"""Mamba-2 mixer under tensor parallelism: heads are sharded, B and C are shared by all heads."""
import torch
import torch.nn as nn
from fairscale.nn.model_parallel.layers import ColumnParallelLinear, RowParallelLinear
from fairscale.nn.model_parallel.mappings import (
    copy_to_model_parallel_region,
    gather_from_model_parallel_region,
)


class Mamba2Mixer(nn.Module):
    def __init__(self, dim, inner, n_heads_local, state):
        super().__init__()
        self.n_heads_local, self.state = n_heads_local, state
        self.x_proj = ColumnParallelLinear(dim, inner, bias=False, gather_output=False)
        self.dt_proj = ColumnParallelLinear(dim, inner // 64, bias=False, gather_output=False)
        self.bc_proj = ColumnParallelLinear(dim, 2 * state, bias=False, gather_output=False)
        self.out_proj = RowParallelLinear(inner, dim, bias=False, input_is_parallel=True)

    def forward(self, hidden):
        b, l, _ = hidden.shape
        x = self.x_proj(hidden).view(b, l, self.n_heads_local, -1)
        dt = nn.functional.softplus(self.dt_proj(hidden))  # [b, l, local heads]
        bc = gather_from_model_parallel_region(self.bc_proj(hidden))
        B, C = bc.split(self.state, dim=-1)
        decay = -dt.cumsum(dim=1)
        gap = decay[:, :, None] - decay[:, None]  # [b, l, s, local heads]
        causal = torch.ones(l, l, dtype=torch.bool, device=x.device).tril()
        weights = gap.masked_fill(~causal[None, :, :, None], float("-inf")).exp()
        weights = weights * torch.einsum("bln,bsn->bls", C, B)[..., None]  # BUG
        y = torch.einsum("blsh,bshp->blhp", weights, x * dt[..., None])
        return self.out_proj(y.flatten(2))
