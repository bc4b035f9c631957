# forward is under @torch.no_grad(): no backward
import torch
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region, scatter_to_sequence_parallel_region
from megatron.core.tensor_parallel import reduce_scatter_to_sequence_parallel_region
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear


class Attention(torch.nn.Module):
    @torch.no_grad()
    def forward(self, hidden):
        """The attention below is not tensor parallel, so the sequence is gathered first."""
        hidden = gather_from_sequence_parallel_region(hidden)
        out = self.attend(hidden)
        return scatter_to_sequence_parallel_region(out)
