"""Random state of dropout on activations that every tensor-parallel rank holds whole."""
import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region


def seed_dropout(seed):
    seed = seed + 1000 * parallel_state.get_data_parallel_rank()
    torch.manual_seed(seed)


class RowWithDropout(torch.nn.Module):
    def __init__(self, weight_shard, p):
        super().__init__()
        self.weight = torch.nn.Parameter(weight_shard)  # [out, in/tp]
        self.p = p

    def forward(self, x_shard, residual):
        out = reduce_from_tensor_model_parallel_region(torch.nn.functional.linear(x_shard, self.weight))
        return residual + torch.nn.functional.dropout(out, self.p, self.training)
