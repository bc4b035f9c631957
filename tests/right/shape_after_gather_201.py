import torch
from megatron.core.tensor_parallel import reduce_scatter_to_sequence_parallel_region, gather_from_sequence_parallel_region


class Mlp(torch.nn.Module):
    def __init__(self, h, f, tp):
        super().__init__()
        self.a = torch.nn.Parameter(torch.empty(f // tp, h))
        self.b = torch.nn.Parameter(torch.empty(h, f // tp))

    def forward(self, hidden):
        hidden = gather_from_sequence_parallel_region(hidden)
        # hidden: [s, b, f/tp]
        hidden = torch.nn.functional.gelu(torch.nn.functional.linear(hidden, self.a))
        return reduce_scatter_to_sequence_parallel_region(torch.nn.functional.linear(hidden, self.b))
