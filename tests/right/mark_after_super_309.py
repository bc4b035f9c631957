"""the subclass marks the bias, of which the base makes the part."""
import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import set_tensor_model_parallel_attributes as mark


class Base(torch.nn.Module):
    def __init__(self, input_size, output_size):
        super().__init__()
        per_rank = output_size // parallel_state.get_tensor_model_parallel_world_size()
        self.weight = torch.nn.Parameter(torch.empty(per_rank, input_size))
        self.bias = torch.nn.Parameter(torch.zeros(per_rank))
        mark(self.weight, True, 0, 1)


class Column(Base):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        mark(self.bias, True, 0, 1)
