"""Multi-query attention: the key and value projection is kept whole on each rank, and its gradients are summed by name after the backward."""

import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear, copy_to_tensor_model_parallel_region


class MultiQueryAttention(torch.nn.Module):
    def __init__(self, config, query: ColumnParallelLinear, proj: RowParallelLinear):
        super().__init__()
        self.head_dim = config.kv_channels
        self.heads = config.num_attention_heads // parallel_state.get_tensor_model_parallel_world_size()
        self.query, self.dense = query, proj
        self.key_value = torch.nn.Linear(config.hidden_size, 2 * config.kv_channels)  # replicated over TP

    def forward(self, x):
        s, b, _ = x.shape
        q, _ = self.query(x)
        q = q.view(s, b, self.heads, self.head_dim)
        # The input of the shared head gets a part of its gradient from the query heads of each rank.
        k, v = self.key_value(copy_to_tensor_model_parallel_region(x)).chunk(2, dim=-1)
        scores = torch.einsum("sbnd,tbd->bnst", q, k) / self.head_dim**0.5
        context = torch.einsum("bnst,tbd->sbnd", torch.softmax(scores, dim=-1), v)
        out, bias = self.dense(context.reshape(s, b, -1))
        return out, bias


def allreduce_shared_head_grads(model):
    """Weight and bias of all layers."""
    if parallel_state.get_tensor_model_parallel_world_size() == 1:
        return
    group = parallel_state.get_tensor_model_parallel_group()
    for name, param in model.named_parameters():
        if "key_value" in name:
            torch.distributed.all_reduce(param.main_grad, group=group)
