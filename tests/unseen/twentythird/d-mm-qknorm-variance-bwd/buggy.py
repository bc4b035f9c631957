"""Query/key norm over all heads, heads sharded over tensor-parallel ranks."""
import torch
from megatron.core.tensor_parallel import (
    ColumnParallelLinear,
    copy_to_tensor_model_parallel_region,
    reduce_from_tensor_model_parallel_region,
)


class TPRMSNorm(torch.nn.Module):
    def __init__(self, weight_shard, full_size, eps=1e-6):
        super().__init__()
        self.weight = torch.nn.Parameter(weight_shard)  # [h/tp]
        self.weight.tensor_model_parallel = True
        self.full_size, self.eps = full_size, eps

    def forward(self, x):
        # x: [s, b, h/tp]; the statistics cover all h
        sq = x.float().pow(2).sum(dim=-1, keepdim=True)
        sq = reduce_from_tensor_model_parallel_region(sq)  # BUG: backward misses what the other ranks' slices need
        x = x.float() * torch.rsqrt(sq / self.full_size + self.eps)
        return x.type_as(self.weight) * self.weight


class Attention(torch.nn.Module):
    def __init__(self, wq: ColumnParallelLinear, wk: ColumnParallelLinear, q_norm, k_norm):
        super().__init__()
        self.wq, self.wk, self.q_norm, self.k_norm = wq, wk, q_norm, k_norm

    def forward(self, x):
        q, k = self.wq(x)[0], self.wk(x)[0]
        return self.q_norm(q), self.k_norm(k)
