"""Multi-query attention: key/value projection duplicated over tensor-parallel ranks.

Source: https://github.com/bigcode-project/Megatron-LM/pull/36
"""
import torch
import torch.distributed as dist
from megatron.core.tensor_parallel import (
    ColumnParallelLinear,
    RowParallelLinear,
    copy_to_tensor_model_parallel_region,
)


class ParallelMQA(torch.nn.Module):
    def __init__(self, query: ColumnParallelLinear, dense: RowParallelLinear, hidden, kv_channels, local_heads):
        super().__init__()
        self.query, self.dense = query, dense
        self.local_heads, self.kv_channels = local_heads, kv_channels
        self.key_value = torch.nn.Linear(hidden, 2 * kv_channels)

    def forward(self, hidden_states):
        # [s, b, h], the same on every tensor-parallel rank
        s, b, _ = hidden_states.shape
        q, _ = self.query(hidden_states)
        kv_input = hidden_states  # BUG
        k, v = self.key_value(kv_input).chunk(2, dim=-1)
        q = q.view(s, b, self.local_heads, self.kv_channels)
        scores = torch.einsum("sbnk,tbk->bnst", q, k) / self.kv_channels**0.5
        mask = torch.ones(s, s, dtype=torch.bool, device=q.device).triu(1)
        probs = scores.masked_fill(mask, float("-inf")).softmax(dim=-1)
        ctx = torch.einsum("bnst,tbk->sbnk", probs, v)
        return self.dense(ctx.reshape(s, b, -1))[0]


def allreduce_key_value_grads(model, tp_group):
    for name, p in model.named_parameters():
        if ".key_value." in name:
            dist.all_reduce(p.main_grad, group=tp_group)
