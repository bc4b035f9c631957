# modelscope/mcore-bridge, pull request 101 - https://github.com/modelscope/mcore-bridge/pull/101 (read: review excerpt)
# The q/k norms of OLMoE run on the gathered, TP-replicated projection, so their gradients are complete on
# each rank. Marked sequence parallel they are summed over TP and come out tp_size times too large.
"""OLMoE attention: RMSNorm over the full query/key width under tensor parallelism."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel import (
    ColumnParallelLinear,
    gather_from_tensor_model_parallel_region,
    scatter_to_tensor_model_parallel_region,
)


class OlmoESelfAttention(torch.nn.Module):
    def __init__(self, config, linear_q: ColumnParallelLinear, linear_k: ColumnParallelLinear, width):
        super().__init__()
        self.config, self.linear_q, self.linear_k = config, linear_q, linear_k
        self.q_norm, self.k_norm = torch.nn.RMSNorm(width), torch.nn.RMSNorm(width)
        for norm in (self.q_norm, self.k_norm):
            for p in norm.parameters():
                p.sequence_parallel = config.sequence_parallel  # BUG: gradient is already complete

    def _norm(self, norm, x):
        x = gather_from_tensor_model_parallel_region(x)  # [s, b, width], equal on all TP ranks
        return scatter_to_tensor_model_parallel_region(norm(x))

    def forward(self, hidden_states):
        q, _ = self.linear_q(hidden_states)
        k, _ = self.linear_k(hidden_states)
        return self._norm(self.q_norm, q), self._norm(self.k_norm, k)


def allreduce_sequence_parallel_grads(model, config):
    if not config.sequence_parallel:
        return
    group = parallel_state.get_tensor_model_parallel_group()
    for p in model.parameters():
        if getattr(p, "sequence_parallel", False):
            dist.all_reduce(p.main_grad, group=group)
