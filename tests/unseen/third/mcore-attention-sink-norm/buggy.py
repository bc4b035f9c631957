"""Attention with a learned sink per head, and the global gradient norm."""
# Source: NVIDIA/Megatron-LM issue 7452, finding 8 (thread names it; code from memory)
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear


class SinkAttention(torch.nn.Module):
    def __init__(self, config, linear_qkv: ColumnParallelLinear, linear_proj: RowParallelLinear):
        super().__init__()
        self.linear_qkv, self.linear_proj = linear_qkv, linear_proj
        self.head_dim = config.kv_channels
        self.np = config.num_attention_heads // config.tensor_model_parallel_size
        self.softmax_offset = torch.nn.Parameter(torch.zeros(self.np))  # BUG

    def forward(self, hidden_states):
        # hidden_states: [s, b, h]
        qkv, _ = self.linear_qkv(hidden_states)
        s, b, _ = qkv.shape
        q, k, v = qkv.view(s, b, self.np, 3 * self.head_dim).chunk(3, dim=-1)
        scores = torch.einsum("sbnd,tbnd->bnst", q, k) / self.head_dim**0.5
        mask = torch.ones(s, s, dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(mask, float("-inf"))
        sink = self.softmax_offset.view(1, -1, 1, 1).expand(b, -1, s, 1)
        probs = torch.cat([scores, sink.to(scores.dtype)], dim=-1).softmax(dim=-1)[..., :-1]
        out = torch.einsum("bnst,tbnd->sbnd", probs, v).reshape(s, b, -1)
        return self.linear_proj(out)


def param_is_not_tensor_parallel_duplicate(param):
    return getattr(param, "tensor_model_parallel", False) or (
        parallel_state.get_tensor_model_parallel_rank() == 0
    )


def clip_grad_norm(params, max_norm):
    counted = [p.main_grad for p in params if param_is_not_tensor_parallel_duplicate(p)]
    total = sum(g.float().pow(2).sum() for g in counted)
    dist.all_reduce(total, group=parallel_state.get_model_parallel_group())
    coeff = max_norm / (total.sqrt() + 1e-6)
    if coeff < 1.0:
        for p in params:
            p.main_grad.mul_(coeff)
    return total.sqrt()
