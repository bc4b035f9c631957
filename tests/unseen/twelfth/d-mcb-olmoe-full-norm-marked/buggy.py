"""Query norm over all heads (OLMoE), heads sharded over tensor-parallel ranks."""
import torch
from megatron.core.tensor_parallel import (
    ColumnParallelLinear,
    gather_from_tensor_model_parallel_region,
    scatter_to_tensor_model_parallel_region,
)
from megatron.core.transformer.module import MegatronModule


class OlmoeQuery(MegatronModule):
    def __init__(self, config, linear_q: ColumnParallelLinear):
        super().__init__(config=config)
        self.linear_q = linear_q
        self.q_norm = torch.nn.RMSNorm(config.hidden_size)
        setattr(self.q_norm.weight, "sequence_parallel", config.sequence_parallel)  # BUG: gradient is already complete
        self.head_dim = config.kv_channels

    def forward(self, hidden_states):
        q, _ = self.linear_q(hidden_states)  # [s, b, h/tp]
        q = gather_from_tensor_model_parallel_region(q)
        q = self.q_norm(q)
        q = scatter_to_tensor_model_parallel_region(q)
        return q.view(*q.shape[:-1], -1, self.head_dim)


def allreduce_layernorm_grads(model, tp_group):
    for p in model.parameters():
        if getattr(p, "sequence_parallel", False):
            torch.distributed.all_reduce(p.main_grad, group=tp_group)
