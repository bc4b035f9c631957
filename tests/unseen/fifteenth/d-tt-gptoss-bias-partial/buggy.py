# Reduced from torchtitan's gpt-oss MoE (pytorch/torchtitan pull request 2106, read).
# With expert tensor parallelism the second weight is sharded along its input dimension, each
# rank's product is a partial sum which is reduced after the experts. The biases are replicated.
# What happens: the output bias is added once per rank, its effect is tp_degree times too large.
import torch
from torch import nn
from torch.distributed.tensor import DTensor


def swiglu(x, alpha=1.702, limit=7.0):
    x_glu, x_linear = x[..., ::2].clamp(max=limit), x[..., 1::2].clamp(-limit, limit)
    return x_glu * torch.sigmoid(alpha * x_glu) * (x_linear + 1)


class GptOssGroupedExperts(nn.Module):
    def __init__(self, dim, hidden_dim, num_experts):
        super().__init__()
        self.mlp1_weight = nn.Parameter(torch.empty(num_experts, hidden_dim * 2, dim))
        self.mlp1_bias = nn.Parameter(torch.empty(num_experts, hidden_dim * 2))
        self.mlp2_weight = nn.Parameter(torch.empty(num_experts, dim, hidden_dim))
        self.mlp2_bias = nn.Parameter(torch.empty(num_experts, dim))

    def forward(self, x, num_tokens_per_expert, tp_degree=1):
        # plan: mlp1 Shard(1) on tp, mlp2_weight Shard(2) on tp, mlp2_bias Replicate
        w1, b1, w2, b2 = (
            p.to_local() if isinstance(p, DTensor) else p
            for p in (self.mlp1_weight, self.mlp1_bias, self.mlp2_weight, self.mlp2_bias)
        )
        offsets = torch.cumsum(num_tokens_per_expert, dim=0, dtype=torch.int32)
        counts = num_tokens_per_expert.long()
        h = torch._grouped_mm(x.bfloat16(), w1.transpose(-2, -1).bfloat16(), offs=offsets)
        h = swiglu(h + b1.repeat_interleave(counts, dim=0).to(h.dtype))
        h = torch._grouped_mm(h, w2.transpose(-2, -1).bfloat16(), offs=offsets)
        h = h + b2.repeat_interleave(counts, dim=0).to(h.dtype)  # BUG
        return h  # Partial(sum) over tp, reduced by the ExpertTensorParallel output hook
