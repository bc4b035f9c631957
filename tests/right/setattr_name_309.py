"""the mark is set by setattr with a name kept in a constant."""
import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import set_tensor_model_parallel_attributes


class Column(torch.nn.Module):
    def __init__(self, input_size, output_size):
        super().__init__()
        per_rank = output_size // parallel_state.get_tensor_model_parallel_world_size()
        self.weight = torch.nn.Parameter(torch.empty(per_rank, input_size))
        set_tensor_model_parallel_attributes(tensor=self.weight, is_parallel=True, dim=0, stride=1)
        self.bias = torch.nn.Parameter(torch.zeros(per_rank))
        setattr(self.bias, MARK, True)
        setattr(self.bias, "partition_dim", 0)
        setattr(self.bias, "partition_stride", 1)


MARK = "tensor_model_parallel"
