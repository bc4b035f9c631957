"""Attention with per-head norms of queries and keys; which gradients are summed over TP."""
import torch
import torch.distributed as dist
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear


class Attention(torch.nn.Module):
    def __init__(self, qkv: ColumnParallelLinear, proj: RowParallelLinear, heads_per_rank, head_dim):
        super().__init__()
        self.qkv, self.proj = qkv, proj
        self.heads, self.dim = heads_per_rank, head_dim
        self.q_norm = torch.nn.RMSNorm(head_dim)  # shared by all heads, replicated over TP
        self.k_norm = torch.nn.RMSNorm(head_dim)

    def forward(self, x):
        qkv, _ = self.qkv(x)  # heads sharded over TP
        q, k, v = qkv.view(*x.shape[:2], self.heads, 3 * self.dim).chunk(3, dim=-1)
        q, k = self.q_norm(q), self.k_norm(k)
        scores = torch.einsum("sbnd,tbnd->bnst", q, k).softmax(-1)
        out = torch.einsum("bnst,tbnd->sbnd", scores, v)
        return self.proj(out.flatten(-2))[0]


def sync_replicated_grads(model, tp_group):
    for name, p in model.named_parameters():
        if "q_norm" in name:  # BUG: the keys' norm sees local heads too
            dist.all_reduce(p.grad, group=tp_group)
