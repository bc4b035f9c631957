"""the bias is added where the sequence is whole again, so that its gradient is whole on every rank."""
import torch
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region


class Head(torch.nn.Module):
    def __init__(self, config, hidden_size, classes):
        super().__init__()
        assert config.sequence_parallel
        self.weight = torch.nn.Parameter(torch.empty(classes, hidden_size))
        self.bias = torch.nn.Parameter(torch.zeros(classes))
        setattr(self.weight, "sequence_parallel", True)

    def forward(self, x):
        out = torch.nn.functional.linear(x, self.weight)
        return gather_from_sequence_parallel_region(out, tensor_parallel_output_grad=False) + self.bias
