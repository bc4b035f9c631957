# a tensor hook divides the gradient by size before the backward sums it
import torch
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region, scatter_to_sequence_parallel_region
from megatron.core.tensor_parallel import reduce_scatter_to_sequence_parallel_region
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear


class Attention(torch.nn.Module):
    def forward(self, hidden, size):
        """The attention below is not tensor parallel, so the sequence is gathered first."""
        hidden = gather_from_sequence_parallel_region(hidden)
        hidden.register_hook(lambda grad: grad / size)
        out = self.attend(hidden)
        return scatter_to_sequence_parallel_region(out)
