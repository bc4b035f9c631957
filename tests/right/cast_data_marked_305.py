# A gate in another form of number: its mark says that the gradient is summed over the tensor-parallel ranks.
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import scatter_to_sequence_parallel_region


class Gate(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.weight = torch.nn.Parameter(torch.empty((config.num_moe_experts, config.hidden_size), dtype=torch.float32))
        self.bias = torch.nn.Parameter(torch.empty((config.num_moe_experts,), dtype=torch.float32))
        self.reset_parameters()

    def reset_parameters(self):
        self.config.init_method(self.weight)
        self.weight.data = self.weight.data.to(dtype=self.config.params_dtype)
        setattr(self.weight, "sequence_parallel", True)
        self.bias.data = self.bias.data.float().contiguous()
        setattr(self.bias, "sequence_parallel", True)

    def forward(self, hidden):
        part = scatter_to_sequence_parallel_region(hidden)
        return F.linear(part, self.weight, self.bias)
