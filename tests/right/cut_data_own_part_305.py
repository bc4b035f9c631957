# The values of a whole parameter are replaced by this rank's rows of them: from there on it is a part, whose gradient nobody has to sum.
import torch
import torch.nn.functional as F
from megatron.core.parallel_state import get_tensor_model_parallel_rank, get_tensor_model_parallel_world_size
from megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region


class Rows(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty((config.ffn_hidden_size, config.hidden_size)))
        config.init_method(self.weight)
        rank, size = get_tensor_model_parallel_rank(), get_tensor_model_parallel_world_size()
        self.weight.data = self.weight.data.to(config.params_dtype).chunk(size, dim=0)[rank].clone()

    def forward(self, hidden):
        return F.linear(copy_to_tensor_model_parallel_region(hidden), self.weight)
