"""Attention with ALiBi, heads sharded over tensor parallelism.

Reduced from bigscience-workshop/Megatron-DeepSpeed 40e8b2a086 (Alibi Tensor Parallel Fix, #244).
"""
import math
import torch
from megatron import mpu

# spmd: mesh dense = dp, tp


class ParallelAttention(torch.nn.Module):
    def __init__(self, num_attention_heads, head_dim, max_seq_len, batch_size):
        super().__init__()
        self.np = num_attention_heads // mpu.get_tensor_model_parallel_world_size()
        self.norm_factor = math.sqrt(head_dim)
        self.alibi = self._build_alibi_tensor(max_seq_len, num_attention_heads, batch_size)

    @staticmethod
    def _build_alibi_tensor(max_seq_len, num_attention_heads, batch_size):  # spmd: -> {tp: V}
        start = 2 ** (-(2 ** -(math.log2(num_attention_heads) - 3)))
        slopes = torch.tensor([start ** (i + 1) for i in range(num_attention_heads)])
        alibi = slopes.view(-1, 1, 1) * torch.arange(max_seq_len).view(1, 1, -1)  # one row per head of the model
        return alibi.repeat(batch_size, 1, 1)  # BUG: all heads, where each rank computes only its own

    # spmd: query: {dp: V, tp: V}, key: {dp: V, tp: V} -> {dp: V, tp: V}
    def forward(self, query, key):
        """query, key: [b * np, s, hn], the heads of this rank."""
        b_np, sk = query.shape[0], key.shape[1]
        bias = self.alibi[:b_np, :, :sk]
        scores = torch.baddbmm(bias, query, key.transpose(1, 2), beta=1.0, alpha=1.0 / self.norm_factor)
        return torch.softmax(scores, dim=-1)
