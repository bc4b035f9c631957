"""Multi-query attention: the query heads are cut over tp, key and value are whole."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from megatron.core.tensor_parallel.mappings import copy_to_tensor_model_parallel_region


class MultiQueryAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        assert not config.sequence_parallel
        self.config = config
        self.head_dim = config.kv_channels
        tp = parallel_state.get_tensor_model_parallel_world_size()
        self.heads_per_rank = config.num_attention_heads // tp
        proj = config.num_attention_heads * config.kv_channels
        self.query = ColumnParallelLinear(
            config.hidden_size, proj, config=config, init_method=config.init_method, gather_output=False
        )
        self.key_value = nn.Linear(config.hidden_size, 2 * self.head_dim, bias=False)
        self.dense = RowParallelLinear(
            proj, config.hidden_size, config=config, init_method=config.init_method, bias=False,
            input_is_parallel=True, skip_bias_add=True,
        )

    def forward(self, hidden, mask):
        s, b, _ = hidden.shape
        q, _ = self.query(hidden)
        q = q.view(s, b, self.heads_per_rank, self.head_dim)
        kv = self.key_value(hidden)  # BUG
        k, v = kv.unsqueeze(2).chunk(2, dim=-1)
        k = k.expand(-1, -1, self.heads_per_rank, -1)
        v = v.expand(-1, -1, self.heads_per_rank, -1)
        q, k, v = (t.permute(1, 2, 0, 3) for t in (q, k, v))
        ctx = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        ctx = ctx.permute(2, 0, 1, 3).reshape(s, b, -1)
        out, _ = self.dense(ctx)
        return out
