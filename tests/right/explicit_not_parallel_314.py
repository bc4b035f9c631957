"""in the expert-parallel configuration with no tensor split the layer is whole: is_parallel is the flag, and the mark its opposite."""
import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import set_tensor_model_parallel_attributes


class Column(torch.nn.Module):
    def __init__(self, config, output_size, split):
        super().__init__()
        size = parallel_state.get_tensor_model_parallel_world_size() if split else 1
        self.bias = torch.nn.Parameter(torch.zeros(output_size // size))
        set_tensor_model_parallel_attributes(tensor=self.bias, is_parallel=split, dim=0, stride=1)
        setattr(self.bias, "sequence_parallel", config.sequence_parallel and not split)
