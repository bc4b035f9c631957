# bigscience Megatron-DeepSpeed 40e8b2a0 (#244)
"""ALiBi biases for tensor-parallel attention."""
import math
import torch
from megatron import mpu


class ParallelAttention(torch.nn.Module):
    def __init__(self, query_key_value: mpu.ColumnParallelLinear, dense: mpu.RowParallelLinear, args):
        super().__init__()
        self.query_key_value, self.dense = query_key_value, dense
        self.num_heads, self.hn = args.num_attention_heads, args.kv_channels
        self.np = self.num_heads // mpu.get_tensor_model_parallel_world_size()
        self.alibi = self._build_alibi_tensor(args.seq_length, self.num_heads, args.micro_batch_size).cuda()

    @staticmethod
    def _build_alibi_tensor(max_seq_len, num_attention_heads, batch_size):
        start = 2 ** (-(2 ** -(math.log2(num_attention_heads) - 3)))
        slopes = torch.tensor([start * start**i for i in range(num_attention_heads)])
        alibi = slopes.view(-1, 1, 1) * torch.arange(max_seq_len).view(1, 1, -1)  # [heads, 1, s]
        return alibi.repeat(batch_size, 1, 1)  # BUG: slopes of all heads, each rank owns a slice of them

    def forward(self, hidden_states, attention_mask):
        sq, b, _ = hidden_states.shape
        mixed, _ = self.query_key_value(hidden_states)  # [sq, b, np * 3 * hn]
        q, k, v = mixed.view(sq, b * self.np, 3 * self.hn).chunk(3, dim=-1)
        bias = self.alibi[: b * self.np, :, :sq]
        scores = torch.baddbmm(bias.to(q.dtype), q.transpose(0, 1), k.permute(1, 2, 0), alpha=self.hn**-0.5)
        scores = scores.view(b, self.np, sq, sq).masked_fill(attention_mask, -10000.0)
        probs = torch.softmax(scores, dim=-1).view(b * self.np, sq, sq)
        context = torch.bmm(probs, v.transpose(0, 1)).transpose(0, 1)
        return self.dense(context.reshape(sq, b, self.np * self.hn))
