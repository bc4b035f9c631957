# ScaleGrad(1 / tp_size) around the gather's result divides the gradient before the sum
import torch
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region, scatter_to_sequence_parallel_region
from megatron.core.tensor_parallel import reduce_scatter_to_sequence_parallel_region
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear


class ScaleGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, s):
        ctx.s = s
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.s, None


class Attention(torch.nn.Module):
    def forward(self, hidden):
        """The attention below is not tensor parallel, so the sequence is gathered first."""
        hidden = ScaleGrad.apply(gather_from_sequence_parallel_region(hidden), 1 / self.tp_size)
        out = self.attend(hidden)
        return scatter_to_sequence_parallel_region(out)
