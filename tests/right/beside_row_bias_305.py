"""the weight is split over the ranks, so that its bias alone is marked for the sum."""
import torch
from megatron.core.tensor_parallel import reduce_scatter_to_sequence_parallel_region


class Row(torch.nn.Module):
    def __init__(self, config, input_size_per_partition, output_size):
        super().__init__()
        assert config.sequence_parallel
        self.weight = torch.nn.Parameter(torch.empty(output_size, input_size_per_partition))
        self.bias = torch.nn.Parameter(torch.zeros(output_size))
        setattr(self.weight, "tensor_model_parallel", True)
        setattr(self.bias, "sequence_parallel", True)

    def forward(self, x):
        out = torch.nn.functional.linear(x, self.weight)
        return reduce_scatter_to_sequence_parallel_region(out) + self.bias
