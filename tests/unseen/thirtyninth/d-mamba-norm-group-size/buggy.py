"""Mamba-2 mixer whose inner dimension is split over a tensor-parallel group."""
import torch
import torch.nn.functional as F
from torch import nn
from mamba_ssm.distributed.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined


class RMSNormGated(nn.Module):
    def __init__(self, dim, eps=1e-5, group_size=None):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps, self.group_size = eps, group_size or dim

    def forward(self, x, z):
        x = x * F.silu(z)
        g = x.unflatten(-1, (-1, self.group_size))
        g = g * torch.rsqrt(g.float().pow(2).mean(-1, keepdim=True) + self.eps).to(g.dtype)
        return g.flatten(-2) * self.weight


class Mamba2(nn.Module):
    def __init__(self, d_model, d_state=128, expand=2, headdim=64, ngroups=8, chunk_size=256, process_group=None):
        super().__init__()
        self.process_group = process_group
        self.world_size = 1 if process_group is None else process_group.size()
        self.d_ssm = expand * d_model // self.world_size
        assert ngroups % self.world_size == 0
        self.ngroups = ngroups // self.world_size
        self.headdim, self.d_state, self.chunk_size = headdim, d_state, chunk_size
        self.nheads = self.d_ssm // headdim

        d_in_proj = 2 * self.d_ssm + 2 * self.ngroups * d_state + self.nheads
        out_in = self.d_ssm * self.world_size
        if process_group is None:
            self.in_proj = nn.Linear(d_model, d_in_proj, bias=False)
            self.out_proj = nn.Linear(self.d_ssm, d_model, bias=False)
        else:
            self.in_proj = ColumnParallelLinear(
                d_model, d_in_proj * self.world_size, bias=False, process_group=process_group
            )
            self.out_proj = RowParallelLinear(out_in, d_model, bias=False, process_group=process_group)
        self.dt_bias = nn.Parameter(torch.zeros(self.nheads))
        self.A_log = nn.Parameter(torch.log(torch.empty(self.nheads).uniform_(1, 16)))
        self.D = nn.Parameter(torch.ones(self.nheads))
        self.norm = RMSNormGated(self.d_ssm, eps=1e-5, group_size=self.d_ssm // ngroups)  # BUG

    def forward(self, u):
        bc = self.ngroups * self.d_state
        z, x, B, C, dt = torch.split(
            self.in_proj(u), [self.d_ssm, self.d_ssm, bc, bc, self.nheads], dim=-1
        )
        y = mamba_chunk_scan_combined(
            x.unflatten(-1, (self.nheads, self.headdim)),
            dt,
            -torch.exp(self.A_log),
            B.unflatten(-1, (self.ngroups, self.d_state)),
            C.unflatten(-1, (self.ngroups, self.d_state)),
            chunk_size=self.chunk_size,
            D=self.D,
            dt_bias=self.dt_bias,
            dt_softplus=True,
        )
        return self.out_proj(self.norm(y.flatten(-2), z))
