# asserts that grad mode is off: no backward
import torch
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region, scatter_to_sequence_parallel_region
from megatron.core.tensor_parallel import reduce_scatter_to_sequence_parallel_region
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear


class Attention(torch.nn.Module):
    def forward(self, hidden):
        """The attention below is not tensor parallel, so the sequence is gathered first."""
        assert not torch.is_grad_enabled()
        hidden = gather_from_sequence_parallel_region(hidden)
        out = self.attend(hidden)
        return scatter_to_sequence_parallel_region(out)
