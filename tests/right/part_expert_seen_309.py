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
        self.bias.requires_grad_(False)
        self.register_buffer("usage", torch.zeros(per_rank))
