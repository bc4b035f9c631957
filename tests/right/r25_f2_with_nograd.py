# all of it is under `with torch.no_grad()`: no backward
import torch
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region, scatter_to_sequence_parallel_region
from megatron.core.tensor_parallel import reduce_scatter_to_sequence_parallel_region
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear


class Teacher(torch.nn.Module):
    def forward(self, hidden):
        """The frozen attention below is not tensor parallel."""
        with torch.no_grad():
            hidden = gather_from_sequence_parallel_region(hidden)
            out = self.attend(hidden)
            return scatter_to_sequence_parallel_region(out)
