"""the mark is set where the parameter has the whole length."""
import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import set_tensor_model_parallel_attributes


class Scale(torch.nn.Module):
    def __init__(self, config, n, split):
        super().__init__()
        part = n // parallel_state.get_tensor_model_parallel_world_size() if split else n
        self.scale = torch.nn.Parameter(torch.ones(part))
        set_tensor_model_parallel_attributes(tensor=self.scale, is_parallel=split, dim=0, stride=1)
        if part == n:
            self.scale.sequence_parallel = config.sequence_parallel
