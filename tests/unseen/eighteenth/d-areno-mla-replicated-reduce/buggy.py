"""Latent attention: replicated down projections followed by column-parallel up projections.

Source: inclusionAI/AReno, pull request #496. Without sequence parallelism the column-parallel
layer sums the gradient of its input over the tensor ranks in its own backward, so the gradients
of the replicated down projections are already complete and the same on each rank. Reducing them
again multiplies them by the size of the group. With sequence parallelism they are partial.
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear


class LatentAttention(torch.nn.Module):
    def __init__(self, config, q_b: ColumnParallelLinear, kv_b: ColumnParallelLinear,
                 proj: RowParallelLinear, q_rank, kv_rank, head_dim):
        super().__init__()
        self.q_a = torch.nn.Linear(config.hidden_size, q_rank, bias=False)
        self.kv_a = torch.nn.Linear(config.hidden_size, kv_rank, bias=False)
        self.q_norm = torch.nn.RMSNorm(q_rank)
        self.kv_norm = torch.nn.RMSNorm(kv_rank)
        self.q_b, self.kv_b, self.proj, self.head_dim = q_b, kv_b, proj, head_dim
        for module in (self.q_a, self.kv_a, self.q_norm, self.kv_norm):
            for p in module.parameters():
                p.tp_replicated = True

    def forward(self, hidden_states):
        # hidden_states: [s, b, h], or this rank's slice of s with config.sequence_parallel
        q, _ = self.q_b(self.q_norm(self.q_a(hidden_states)))  # [s, b, local heads * d]
        kv, _ = self.kv_b(self.kv_norm(self.kv_a(hidden_states)))
        q = q.unflatten(-1, (-1, self.head_dim)).permute(1, 2, 0, 3)
        k, v = kv.unflatten(-1, (-1, 2 * self.head_dim)).permute(1, 2, 0, 3).chunk(2, dim=-1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out, _ = self.proj(out.permute(2, 0, 1, 3).flatten(2))
        return out


def reduce_replicated_grads(model, config):
    group = parallel_state.get_tensor_model_parallel_group()
    for p in model.parameters():
        if p.grad is None:
            continue
        if getattr(p, "tp_replicated", False):
            dist.all_reduce(p.grad, group=group)  # BUG
