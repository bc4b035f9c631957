"""QKV projection with fewer key/value heads than tensor-parallel ranks."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from neuronx_distributed.parallel_layers import parallel_state
from neuronx_distributed.parallel_layers.mappings import copy_to_tensor_model_parallel_region


class GQAQKVColumnParallelLinear(torch.nn.Module):
    """Every kv_size_multiplier ranks hold the same key/value heads."""

    def __init__(self, w_q_shard, w_kv_shard, kv_size_multiplier):
        super().__init__()
        self.weight_q = torch.nn.Parameter(w_q_shard)
        self.weight_kv = torch.nn.Parameter(w_kv_shard)
        self.kv_size_multiplier = kv_size_multiplier
        if kv_size_multiplier > 1:
            self.weight_kv.register_hook(self._reduce_kv_grad)

    def _reduce_kv_grad(self, grad):
        grad = grad.clone()
        group = parallel_state.get_kv_shared_group()
        dist.all_reduce(grad, group=group)
        return grad

    def forward(self, x):
        x = copy_to_tensor_model_parallel_region(x)
        return F.linear(x, self.weight_q), F.linear(x, self.weight_kv)
