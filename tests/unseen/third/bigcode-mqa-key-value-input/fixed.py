"""Multi-query attention under tensor parallelism."""
# Source: bigcode-project/Megatron-LM pull requests 36, 37 and 39 (confirmed from the threads)
import torch
from megatron.core.tensor_parallel import (
    ColumnParallelLinear,
    RowParallelLinear,
    copy_to_tensor_model_parallel_region,
)


class ParallelMultiQueryAttention(torch.nn.Module):
    def __init__(self, config, query: ColumnParallelLinear, dense: RowParallelLinear):
        super().__init__()
        self.query, self.dense = query, dense
        self.head_dim = config.kv_channels
        self.heads_per_partition = config.num_attention_heads // config.tensor_model_parallel_size
        # the single key/value head is kept on every tensor-parallel rank
        self.key_value = torch.nn.Linear(config.hidden_size, 2 * self.head_dim)

    def forward(self, hidden_states):
        # hidden_states: [s, b, h]
        s, b, _ = hidden_states.shape
        q, _ = self.query(hidden_states)
        q = q.view(s, b, self.heads_per_partition, self.head_dim)
        key_value = copy_to_tensor_model_parallel_region(self.key_value(hidden_states))
        key, value = key_value.chunk(2, dim=-1)
        scores = torch.einsum("sbnd,tbd->bnst", q, key) / self.head_dim**0.5
        mask = torch.ones(s, s, dtype=torch.bool, device=q.device).triu(1)
        probs = scores.masked_fill(mask, float("-inf")).softmax(dim=-1)
        context = torch.einsum("bnst,tbd->sbnd", probs, value).reshape(s, b, -1)
        return self.dense(context)[0]


class TransformerLayer(torch.nn.Module):
    def __init__(self, config, attention, mlp):
        super().__init__()
        self.input_norm = torch.nn.LayerNorm(config.hidden_size)
        self.post_attention_norm = torch.nn.LayerNorm(config.hidden_size)
        self.attention, self.mlp = attention, mlp

    def forward(self, hidden_states):
        hidden_states = hidden_states + self.attention(self.input_norm(hidden_states))
        return hidden_states + self.mlp(self.post_attention_norm(hidden_states))


def train_step(model, batch, loss_func, optimizer, dp_group, tp_group):
    optimizer.zero_grad()
    loss_func(model(batch["tokens"]), batch["labels"]).backward()
    for param in model.parameters():
        torch.distributed.all_reduce(param.grad, op=torch.distributed.ReduceOp.AVG, group=dp_group)
    optimizer.step()
