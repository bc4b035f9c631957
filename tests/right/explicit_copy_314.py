"""is_parallel is false: the parameter is whole on every rank and has the sequence mark."""
import torch
from megatron.core.tensor_parallel import set_tensor_model_parallel_attributes


class Whole(torch.nn.Module):
    def __init__(self, config, output_size):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(output_size))
        set_tensor_model_parallel_attributes(tensor=self.bias, is_parallel=False, dim=-1, stride=1)
        setattr(self.bias, "sequence_parallel", config.sequence_parallel)
