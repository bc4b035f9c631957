"""Gated RMSNorm over an inner dimension that is split by tensor parallelism (Mamba mixer)."""
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    reduce_from_tensor_model_parallel_region,
)


class TPGatedRMSNorm(torch.nn.Module):
    def __init__(self, d_inner, tp_size, eps=1e-5):
        super().__init__()
        self.d_inner, self.eps = d_inner, eps
        self.weight = torch.nn.Parameter(torch.ones(d_inner // tp_size))
        setattr(self.weight, "tensor_model_parallel", True)
        setattr(self.weight, "partition_dim", 0)

    def forward(self, x, z):
        # x, z: [l, b, d_inner / tp]
        x = x.float() * F.silu(z.float())
        sumsq = x.pow(2).sum(dim=-1, keepdim=True)
        sumsq = reduce_from_tensor_model_parallel_region(sumsq)  # BUG: identity backward, but each rank scales its own channels by it
        x = x * torch.rsqrt(sumsq / self.d_inner + self.eps)
        return (x * self.weight).to(z.dtype)


class MambaMixer(torch.nn.Module):
    def __init__(self, in_proj, ssm, norm, out_proj):
        super().__init__()
        self.in_proj, self.ssm, self.norm, self.out_proj = in_proj, ssm, norm, out_proj

    def forward(self, hidden_states):
        xz, _ = self.in_proj(hidden_states)  # ColumnParallelLinear
        x, z = xz.chunk(2, dim=-1)
        y = self.norm(self.ssm(x), z)
        return self.out_proj(y)  # RowParallelLinear
