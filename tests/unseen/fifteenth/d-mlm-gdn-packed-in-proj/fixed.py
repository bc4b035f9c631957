# Reduced from Megatron-LM core/ssm/gated_delta_net.py (NVIDIA/Megatron-LM pull request 1989, comment, read) and
# its weight import. in_proj packs q, k, v, gate, beta and alpha along the output dimension; the
# forward splits the local output into the local parts of the six.
# What happens: with tp > 1 rank 0 gets q, k and a piece of v, the next rank the rest; each rank reads
# its rows as if it had a share of every part.
import torch
import torch.nn as nn
from megatron.core import parallel_state
from megatron.core.tensor_parallel import ColumnParallelLinear


class GatedDeltaNet(nn.Module):
    def __init__(self, config, num_key_heads, num_value_heads, key_head_dim, value_head_dim):
        super().__init__()
        self.tp_size = parallel_state.get_tensor_model_parallel_world_size()
        self.tp_rank = parallel_state.get_tensor_model_parallel_rank()
        qk_dim, v_dim = num_key_heads * key_head_dim, num_value_heads * value_head_dim
        # q, k, v, gate, beta, alpha
        self.in_proj_sections = [qk_dim, qk_dim, v_dim, v_dim, num_value_heads, num_value_heads]
        self.in_proj = ColumnParallelLinear(
            config.hidden_size,
            sum(self.in_proj_sections),
            config=config,
            init_method=config.init_method,
            bias=False,
            gather_output=False,
        )

    @torch.no_grad()
    def load_in_proj(self, full_weight):
        """full_weight: [sum(sections), hidden], the parts one after the other."""
        parts = full_weight.split(self.in_proj_sections, dim=0)
        local = torch.cat([part.chunk(self.tp_size, dim=0)[self.tp_rank] for part in parts], dim=0)
        self.in_proj.weight.copy_(local)

    def project(self, hidden_states):
        qkvzba, _ = self.in_proj(hidden_states)
        local_sections = [s // self.tp_size for s in self.in_proj_sections]
        query, key, value, gate, beta, alpha = torch.split(qkvzba, local_sections, dim=-1)
        return query, key, value, gate, beta, alpha
