# the gather's input is detached: no gradient goes through the gather, weights get the whole gradient
import torch
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region, scatter_to_sequence_parallel_region
from megatron.core.tensor_parallel import reduce_scatter_to_sequence_parallel_region
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear


class Probe(torch.nn.Module):
    def forward(self, hidden):
        """The attention below is not tensor parallel; the input is detached."""
        hidden = gather_from_sequence_parallel_region(hidden.detach())
        out = self.attend(hidden)
        return scatter_to_sequence_parallel_region(out)
