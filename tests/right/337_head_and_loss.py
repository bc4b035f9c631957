"""Gathered sequences whose readers are split, or whose gather is told that they are not."""
import torch
from megatron.core.tensor_parallel import ColumnParallelLinear, gather_from_sequence_parallel_region


class Split(torch.nn.Module):
    def __init__(self, config, output: ColumnParallelLinear):
        super().__init__()
        self.output = output  # split over TP

    def forward(self, x):
        x = gather_from_sequence_parallel_region(x)
        return self.output(x)


class Told(torch.nn.Module):
    def __init__(self, config, width):
        super().__init__()
        self.head = torch.nn.Linear(config.hidden_size, width)  # replicated over TP

    def forward(self, x):
        x = gather_from_sequence_parallel_region(x, tensor_parallel_output_grad=False)
        return self.head(x)
