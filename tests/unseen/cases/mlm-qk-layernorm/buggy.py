"""Self attention with query/key layer norm."""
import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import ColumnParallelLinear


class SelfAttention(torch.nn.Module):
    def __init__(self, config, linear_qkv: ColumnParallelLinear):
        super().__init__()
        self.linear_qkv, self.head_dim = linear_qkv, config.kv_channels
        self.q_layernorm = torch.nn.LayerNorm(config.kv_channels)
        self.k_layernorm = torch.nn.LayerNorm(config.kv_channels)

    def forward(self, hidden_states):
        mixed, _ = self.linear_qkv(hidden_states)  # heads are sharded over TP
        q, k, v = mixed.view(*mixed.shape[:-1], -1, 3 * self.head_dim).chunk(3, dim=-1)
        return self.q_layernorm(q), self.k_layernorm(k), v


def allreduce_layernorm_grads(model, config):
    """Layer norms of the sequence-parallel regions."""
    if config.sequence_parallel:  # BUG: q_layernorm and k_layernorm have no mark and need it always
        for p in model.parameters():
            if getattr(p, "sequence_parallel", False):
                torch.distributed.all_reduce(
                    p.main_grad, group=parallel_state.get_tensor_model_parallel_group()
                )
