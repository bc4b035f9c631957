# modelscope/mcore-bridge pull request 101
# The query and key norms run on heads gathered over TP, so every rank already holds the whole gradient;
# marked like ordinary q/k norms they are summed over TP and come out tp_size times too large.
"""Attention whose query and key norms span all heads."""
import torch
from megatron.core.tensor_parallel import (
    ColumnParallelLinear,
    gather_from_tensor_model_parallel_region,
    scatter_to_tensor_model_parallel_region,
)


class OlmoeSelfAttention(torch.nn.Module):
    def __init__(self, config, linear_qkv: ColumnParallelLinear, head_dim):
        super().__init__()
        self.linear_qkv, self.head_dim = linear_qkv, head_dim
        hidden = config.num_attention_heads * head_dim
        self.q_layernorm = torch.nn.RMSNorm(hidden, eps=config.layernorm_epsilon)
        self.k_layernorm = torch.nn.RMSNorm(hidden, eps=config.layernorm_epsilon)
        for norm in (self.q_layernorm, self.k_layernorm):
            for p in norm.parameters():
                p.sequence_parallel = config.sequence_parallel  # BUG

    def get_query_key_value_tensors(self, hidden_states):
        mixed_qkv, _ = self.linear_qkv(hidden_states)  # heads sharded over TP
        query, key, value = mixed_qkv.chunk(3, dim=-1)
        query = self.q_layernorm(gather_from_tensor_model_parallel_region(query.contiguous()))
        key = self.k_layernorm(gather_from_tensor_model_parallel_region(key.contiguous()))
        query = scatter_to_tensor_model_parallel_region(query)
        key = scatter_to_tensor_model_parallel_region(key)
        return tuple(t.unflatten(-1, (-1, self.head_dim)) for t in (query, key, value))


def allreduce_non_tensor_model_parallel_grads(model, config, tp_group):
    for name, param in model.named_parameters():
        if not param.requires_grad:
            continue
        if getattr(param, "average_gradients_across_tp_domain", False):
            torch.distributed.all_reduce(param.main_grad, op=torch.distributed.ReduceOp.AVG, group=tp_group)
        elif (config.sequence_parallel and getattr(param, "sequence_parallel", False)) or (
            config.qk_layernorm and ("q_layernorm" in name or "k_layernorm" in name)
        ):
            torch.distributed.all_reduce(param.main_grad, group=tp_group)
