"""Linear attention that is not split over TP, in a sequence-parallel model."""
import torch
from megatron.core.tensor_parallel import (
    gather_from_sequence_parallel_region,
    scatter_to_sequence_parallel_region,
)


class ReplicatedLinearAttention(torch.nn.Module):
    def __init__(self, hidden, config):
        super().__init__()
        self.in_proj = torch.nn.Linear(hidden, 3 * hidden, bias=False)  # whole on every TP rank
        self.out_proj = torch.nn.Linear(hidden, hidden, bias=False)
        self.sequence_parallel = config.sequence_parallel

    def forward(self, hidden):
        # hidden: [s/tp, b, h]
        if self.sequence_parallel:
            hidden = gather_from_sequence_parallel_region(hidden)  # BUG: backward sums tp equal gradients
        q, k, v = self.in_proj(hidden).chunk(3, dim=-1)
        state = torch.cumsum(k * v, dim=0)
        out = self.out_proj(q * state)
        if self.sequence_parallel:
            out = scatter_to_sequence_parallel_region(out)
        return out
