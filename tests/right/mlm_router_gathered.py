"""Under sequence parallelism the router's input is gathered; all ranks route alike and scatter the result."""
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import (
    gather_from_sequence_parallel_region,
    scatter_to_sequence_parallel_region,
)


class GlobalGate(torch.nn.Module):
    """A gate over the whole sequence, computed on every rank in the same way."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.weight = torch.nn.Parameter(torch.empty(1, config.hidden_size))
        torch.nn.init.zeros_(self.weight)

    def forward(self, x):
        # x: [s/tp, b, h] with sequence parallelism, else [s, b, h]
        if self.config.sequence_parallel:
            # every rank does the same with the whole: the gradient is split, not summed
            x = gather_from_sequence_parallel_region(x, tensor_parallel_output_grad=False)
        score = F.linear(x, self.weight)
        out = x * torch.softmax(score, dim=0) * x.shape[0]
        if self.config.sequence_parallel:
            out = scatter_to_sequence_parallel_region(out)
        return out
