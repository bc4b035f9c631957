import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import set_tensor_model_parallel_attributes


class Column(torch.nn.Module):
    """A column-parallel layer: the bias is divided like the rows."""

    def __init__(self, input_size, output_size):
        super().__init__()
        per_rank = output_size // parallel_state.get_tensor_model_parallel_world_size()
        self.weight = torch.nn.Parameter(torch.empty(per_rank, input_size))
        self.bias = torch.nn.Parameter(torch.zeros(per_rank))
        set_tensor_model_parallel_attributes(self.weight, True, 0, 1)
        set_tensor_model_parallel_attributes(self._parameters["bias"], True, 0, 1)
