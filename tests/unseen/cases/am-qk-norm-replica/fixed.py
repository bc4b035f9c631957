"""Synchronise gradients of parameters that a TP plan leaves replicated."""
import torch
import torch.distributed as dist
from megatron.core.tensor_parallel import ColumnParallelLinear


class Attention(torch.nn.Module):
    def __init__(self, q_proj: ColumnParallelLinear, k_proj: ColumnParallelLinear, head_dim):
        super().__init__()
        self.q_proj, self.k_proj, self.head_dim = q_proj, k_proj, head_dim
        self.q_norm = torch.nn.RMSNorm(head_dim)  # one weight for all heads
        self.k_norm = torch.nn.RMSNorm(head_dim)

    def forward(self, x):
        q = self.q_proj(x)[0].unflatten(-1, (-1, self.head_dim))  # heads sharded over TP
        k = self.k_proj(x)[0].unflatten(-1, (-1, self.head_dim))
        return self.q_norm(q) @ self.k_norm(k).transpose(-1, -2)


def sync_replicated_grads(model, tp_group):
    """Disjoint head contributions are summed."""
    for name, p in model.named_parameters():
        if "q_norm" in name or "k_norm" in name:
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM, group=tp_group)
