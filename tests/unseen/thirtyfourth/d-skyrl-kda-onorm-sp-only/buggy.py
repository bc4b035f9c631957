# NovaSky-AI/SkyRL, pull request 2226 - https://github.com/NovaSky-AI/SkyRL/pull/2226 (read: review excerpt)
# The output norm of Kimi delta attention has one weight for all heads, heads are sharded over TP. Its
# gradient is partial on each TP rank with or without sequence parallelism; the flag covers only the latter.
"""Output stage of a linear attention layer: per-head gated RMSNorm, then row-parallel projection."""
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import (
    ColumnParallelLinear,
    RowParallelLinear,
    copy_to_tensor_model_parallel_region,
)


class KimiDeltaAttention(torch.nn.Module):
    def __init__(self, config, in_proj: ColumnParallelLinear, g_proj: ColumnParallelLinear,
                 out_proj: RowParallelLinear, head_dim):
        super().__init__()
        self.in_proj, self.g_proj, self.out_proj = in_proj, g_proj, out_proj
        self.head_dim, self.eps = head_dim, config.layernorm_epsilon
        self.o_norm_weight = torch.nn.Parameter(torch.ones(head_dim))  # shared by all heads
        if config.sequence_parallel:  # BUG: partial over the heads of each rank without it too
            setattr(self.o_norm_weight, "sequence_parallel", True)

    def forward(self, hidden_states):
        o, _ = self.in_proj(hidden_states)  # [s, b, local heads * head_dim]
        g, _ = self.g_proj(hidden_states)
        o = o.unflatten(-1, (-1, self.head_dim))
        g = g.unflatten(-1, (-1, self.head_dim))
        o = F.rms_norm(o, (self.head_dim,), self.o_norm_weight, self.eps) * torch.sigmoid(g)
        out, bias = self.out_proj(o.flatten(-2))
        return out, bias
