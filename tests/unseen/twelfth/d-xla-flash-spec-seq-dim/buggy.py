"""Attention with the Pallas flash kernel under SPMD (mesh axes: fsdp, tensor)."""
import torch
import torch_xla.distributed.spmd as xs
from torch_xla.experimental.custom_kernel import flash_attention


class Attention(torch.nn.Module):
    def __init__(self, hidden, num_heads, mesh):
        super().__init__()
        self.num_heads, self.head_dim, self.mesh = num_heads, hidden // num_heads, mesh
        self.q_proj = torch.nn.Linear(hidden, hidden, bias=False)
        self.k_proj = torch.nn.Linear(hidden, hidden, bias=False)
        self.v_proj = torch.nn.Linear(hidden, hidden, bias=False)
        self.o_proj = torch.nn.Linear(hidden, hidden, bias=False)
        self.partition_spec = ("fsdp", None, "tensor", None)  # BUG: dim 2 is the sequence in the layout given to the kernel

    def shard_weights(self):
        for proj in (self.q_proj, self.k_proj, self.v_proj):
            xs.mark_sharding(proj.weight, self.mesh, ("tensor", "fsdp"))
        xs.mark_sharding(self.o_proj.weight, self.mesh, ("fsdp", "tensor"))

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = (
            proj(x).view(b, s, self.num_heads, self.head_dim).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        out = flash_attention(
            q, k, v, causal=True, sm_scale=self.head_dim ** -0.5,
            partition_spec=self.partition_spec, mesh=self.mesh,
        )
        return self.o_proj(out.transpose(1, 2).reshape(b, s, -1))
