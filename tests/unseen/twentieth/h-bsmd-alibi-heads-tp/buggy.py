# bigscience Megatron-DeepSpeed, pull 244: the ALiBi bias is built for all heads of the model; each tensor-parallel rank
# has to take the part that belongs to its own heads.
"""ALiBi attention scores with heads split over tensor-parallel ranks."""
import torch
from megatron import get_args, mpu


class ParallelTransformerLayer(torch.nn.Module):
    def __init__(self, query, key):
        super().__init__()
        args = get_args()
        self.query, self.key = query, key  # column parallel: heads are split over tensor-parallel ranks
        self.np = mpu.divide(args.num_attention_heads, mpu.get_tensor_model_parallel_world_size())
        self.norm_factor = args.kv_channels**0.5
        self.register_buffer(
            "alibi", self._build_alibi_tensor(args.seq_length, args.num_attention_heads, args.micro_batch_size)
        )

    @staticmethod
    def _build_alibi_tensor(max_seq_len, num_attention_heads, batch_size):
        """Bias of shape (batch * heads, 1, max_seq_len); num_attention_heads is a power of two."""
        start = 2 ** (-8.0 / num_attention_heads)
        slopes = torch.tensor([start ** (i + 1) for i in range(num_attention_heads)])
        alibi = slopes.unsqueeze(1).unsqueeze(1) * torch.arange(max_seq_len).view(1, 1, -1)
        return alibi.repeat(batch_size, 1, 1)

    def attention_scores(self, hidden_states):
        s, b, _ = hidden_states.shape
        q = self.query(hidden_states)[0].view(s, b * self.np, -1).transpose(0, 1)
        k = self.key(hidden_states)[0].view(s, b * self.np, -1).transpose(0, 1)
        bias = self.alibi[: b * self.np, :, :s].to(q.dtype)  # BUG: slopes of the first heads on each rank
        scores = torch.baddbmm(bias, q, k.transpose(1, 2), alpha=1.0 / self.norm_factor)
        causal = torch.ones(s, s, dtype=torch.bool, device=scores.device).tril()
        return scores.masked_fill(~causal, float("-inf")).softmax(dim=-1)
