"""OLMoE attention: q/k norm over the whole projection, not per head.

Source: https://github.com/modelscope/mcore-bridge/pull/101
Wrong: the norm runs on the gathered (complete, equal on all TP ranks) projection, so its gradient
is complete; marked sequence_parallel it is summed over TP and comes out tp times too large.
Repair: not sequence_parallel; only averaged over the TP domain to keep the copies equal.
"""
import torch
import torch.distributed as dist
from megatron.core.tensor_parallel import (
    gather_from_tensor_model_parallel_region,
    scatter_to_tensor_model_parallel_region,
)
from megatron.core.transformer.attention import SelfAttention


class OlmoeSelfAttention(SelfAttention):
    def __init__(self, config, submodules, *args, **kwargs):
        super().__init__(config, submodules, *args, **kwargs)
        self.q_norm = torch.nn.RMSNorm(config.num_attention_heads * config.kv_channels)
        self.k_norm = torch.nn.RMSNorm(config.num_query_groups * config.kv_channels)
        for norm in (self.q_norm, self.k_norm):
            for p in norm.parameters():
                p.sequence_parallel = False
                p.average_gradients_across_tp_domain = True

    def get_query_key_value_tensors(self, hidden_states, key_value_states=None):
        query, key, value = super().get_query_key_value_tensors(hidden_states, key_value_states)
        out = []
        for t, norm in ((query, self.q_norm), (key, self.k_norm)):
            shape = t.shape
            t = gather_from_tensor_model_parallel_region(t.flatten(-2))  # backward: split
            t = scatter_to_tensor_model_parallel_region(norm(t))  # backward: gather
            out.append(t.view(shape))
        return (*out, value)


def allreduce_non_tensor_model_parallel_grads(model, config, tp_group):
    for p in model.parameters():
        if getattr(p, "average_gradients_across_tp_domain", False):
            dist.all_reduce(p.main_grad, op=dist.ReduceOp.AVG, group=tp_group)
        elif config.sequence_parallel and getattr(p, "sequence_parallel", False):
            dist.all_reduce(p.main_grad, op=dist.ReduceOp.SUM, group=tp_group)
