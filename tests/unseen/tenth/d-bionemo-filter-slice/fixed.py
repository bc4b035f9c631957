"""Implicit modal filter of the Hyena operator; channels are split over the context-parallel group.

NVIDIA/bionemo-framework 01f78bcb2495, evo2/models/megatron/hyena/hyena_utils.py
"""
import torch
import torch.nn as nn
from megatron.core.parallel_state import get_context_parallel_rank, get_context_parallel_world_size
from subquadratic_ops_torch.implicit_filter import implicit_filter


class ImplicitModalFilter(nn.Module):
    def __init__(self, d_model, order=64, use_subquadratic_ops=False):
        super().__init__()
        self.d_model = d_model
        self.use_subquadratic_ops = use_subquadratic_ops
        self._cp_rank = get_context_parallel_rank()
        self._cp_size = get_context_parallel_world_size()
        self.p = nn.Parameter(-torch.ones(d_model, order))
        self.R = nn.Parameter(1e-1 * torch.randn(d_model, order))
        self.implicit_filter = implicit_filter

    def get_logp(self):
        if self._cp_size > 1:
            rank = self._cp_rank
            local_size = self.d_model // self._cp_size
            p = self.p[rank * local_size : (rank + 1) * local_size].to(torch.float32)
        else:
            p = self.p.to(torch.float32)
        return -torch.exp(p)

    def compute_filter(self, L, t):
        if self._cp_size > 1:
            rank = self._cp_rank
            local_size = self.d_model // self._cp_size
            R = self.R[rank * local_size : (rank + 1) * local_size].to(torch.float32)
        else:
            R = self.R.to(torch.float32)
        h = torch.exp(self.get_logp()[..., None] * t)
        return torch.einsum("do,dot->dt", R, h)[None]

    def filter(self, L):
        """Get t and the convolution filter for t and the requested sequence length."""
        if self.use_subquadratic_ops:
            if self._cp_size > 1:
                local_size = self.d_model // self._cp_size
                R = self.R[self._cp_rank * local_size : (self._cp_rank + 1) * local_size].float()
            else:
                R = self.R.to(torch.float32)
            h = self.implicit_filter(self.get_logp(), R, L)
            return h.unsqueeze(0)
        t = torch.arange(L, dtype=torch.float32, device=self.p.device)[None, None]
        return self.compute_filter(L, t)

    def forward(self, L):
        return self.filter(L)
