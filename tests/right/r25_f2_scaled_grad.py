# the gradient of the gathered value is divided by size (detach trick) before the backward sums it
import torch
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region, scatter_to_sequence_parallel_region
from megatron.core.tensor_parallel import reduce_scatter_to_sequence_parallel_region
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear


class Attention(torch.nn.Module):
    def forward(self, hidden, size):
        """The attention below is not tensor parallel, so the sequence is gathered first."""
        hidden = gather_from_sequence_parallel_region(hidden)
        hidden = hidden / size + (hidden - hidden / size).detach()
        out = self.attend(hidden)
        return scatter_to_sequence_parallel_region(out)
