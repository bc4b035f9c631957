# RIGHT: both are given to one function, the second meets data that is whole on all ranks (gather only with sequence parallelism), so its gradient is whole
import torch
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region


def norm_then_head(x, gamma, head, sequence_parallel):
    x = torch.nn.functional.layer_norm(x, gamma.shape, gamma)
    if sequence_parallel:
        x = gather_from_sequence_parallel_region(x, tensor_parallel_output_grad=False)
    return torch.nn.functional.linear(x, head)


class Head(torch.nn.Module):
    def __init__(self, config, size):
        super().__init__()
        self.sequence_parallel = config.sequence_parallel
        self.gamma = torch.nn.Parameter(torch.ones(size))
        self.head = torch.nn.Parameter(torch.empty(size, size))
        self.gamma.sequence_parallel = config.sequence_parallel

    def forward(self, x):
        return norm_then_head(x, self.gamma, self.head, self.sequence_parallel)
