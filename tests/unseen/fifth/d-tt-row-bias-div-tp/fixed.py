"""Row-parallel projection that adds its share of the bias before the reduction."""
import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region


class RowProjection(torch.nn.Module):
    def __init__(self, weight_shard, out_features):
        super().__init__()
        self.weight = torch.nn.Parameter(weight_shard)  # [out, in/tp]
        self.weight.tensor_model_parallel = True
        self.bias = torch.nn.Parameter(torch.zeros(out_features))  # replicated
        self.tp_degree = parallel_state.get_tensor_model_parallel_world_size()

    def forward(self, x_shard):
        out = F.linear(x_shard, self.weight)
        out = out + self.bias + (self.bias / self.tp_degree - self.bias).detach()
        return reduce_from_tensor_model_parallel_region(out)
