"""Output gathering of a 2D (SUMMA) parallel linear.

Reduced from EleutherAI/oslo f37d39b188 (fix linear gather_output).
"""
import torch
from oslo.torch.distributed import ParallelMode
from oslo.torch.nn.parallel.tensor_parallel._parallel_2d._ops import (
    Matmul_ABT_2D,
    all_gather_tensor_2d,
    split_batch_2d,
)

# spmd: mesh tensor2d = col, row
# spmd: group ParallelMode.TENSOR_2D_COL = col; group ParallelMode.TENSOR_2D_ROW = row


class Linear2D(torch.nn.Module):
    def __init__(self, weight_block, summa_args, parallel_context, gather_output=False):
        super().__init__()
        self.weight = torch.nn.Parameter(weight_block)
        self.summa_args = summa_args
        self.parallel_context = parallel_context
        self.gather_output = gather_output

    def forward(self, input):
        outputs = Matmul_ABT_2D.apply(input, self.weight, *self.summa_args)  # spmd: {col: S(0), row: S(-1)}
        if self.gather_output:
            outputs = all_gather_tensor_2d(
                outputs,
                dim=0,
                parallel_mode=ParallelMode.TENSOR_2D_COL,
                parallel_context=self.parallel_context,
            ).clone()
            outputs = all_gather_tensor_2d(
                outputs,
                dim=-1,
                parallel_mode=ParallelMode.TENSOR_2D_ROW,
                parallel_context=self.parallel_context,
            ).clone()
        return outputs


@torch.no_grad()
def predict(classifier, hidden, parallel_context):
    """classifier: Linear2D with gather_output; hidden: whole batch, last dim split over the rows."""
    logits = classifier(split_batch_2d(hidden, dim=0, parallel_context=parallel_context))
    # spmd: logits: {col: R, row: R}
    return logits.argmax(dim=-1)
