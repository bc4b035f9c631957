import torch
from megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region


class Norm(torch.nn.Module):
    """The bias is shared with the un-normed path, hence its gradient is summed in the backward."""

    def __init__(self, config, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))
        self.bias = torch.nn.Parameter(torch.zeros(size))
        self.sequence_parallel = config.sequence_parallel
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)

    def forward(self, x):
        bias = copy_to_tensor_model_parallel_region(self.bias) if self.sequence_parallel else self.bias
        return torch.nn.functional.layer_norm(x, self.weight.shape, self.weight, bias)
