"""Grouped-query attention where there are fewer key and value heads than ranks: every rank computes all of them and takes its own."""

# spmd: mesh dense = dp, tp
import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region, reduce_from_tensor_model_parallel_region


class GroupedQueryAttention(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.tp_size = parallel_state.get_tensor_model_parallel_world_size()
        self.tp_rank = parallel_state.get_tensor_model_parallel_rank()
        self.head_dim = config.hidden_size // config.num_attention_heads
        self.heads = config.num_attention_heads // self.tp_size
        self.kv_heads = config.num_query_groups
        assert self.tp_size % self.kv_heads == 0, "ranks share key and value heads"
        self.kv_index = self.tp_rank * self.kv_heads // self.tp_size
        self.wq = torch.nn.Parameter(torch.empty(self.heads * self.head_dim, config.hidden_size))  # spmd: {tp: S(0)}
        # Every rank keeps all key and value heads; their gradient is the sum of the parts of all ranks.
        self.wkv = torch.nn.Parameter(torch.empty(2 * self.kv_heads * self.head_dim, config.hidden_size))  # spmd: {tp: I}
        self.wo = torch.nn.Parameter(torch.empty(config.hidden_size, self.heads * self.head_dim))  # spmd: {tp: S(1)}

    # spmd: x: {dp: V, tp: I} -> {dp: V, tp: I}
    def forward(self, x):
        sequence, batch, _ = x.shape
        q = F.linear(copy_to_tensor_model_parallel_region(x), self.wq)
        q = q.view(sequence, batch, self.heads, self.head_dim)
        # The projection is one computation done by all ranks: x and wkv are both invariant here.
        kv = F.linear(x, self.wkv).view(sequence, batch, self.kv_heads, 2 * self.head_dim)
        # From here each rank uses its own head, so the gradients are summed over the ranks.
        kv = copy_to_tensor_model_parallel_region(kv)
        kv = kv[:, :, self.kv_index : self.kv_index + 1]
        k, v = torch.split(kv, self.head_dim, dim=-1)
        k = k.expand(-1, -1, self.heads, -1)
        v = v.expand(-1, -1, self.heads, -1)
        q, k, v = (t.permute(1, 2, 0, 3) for t in (q, k, v))
        context = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        context = context.permute(2, 0, 1, 3).reshape(sequence, batch, self.heads * self.head_dim)
        return reduce_from_tensor_model_parallel_region(F.linear(context, self.wo))
