"""Value head of the critic: replicated linear on top of a sequence-parallel decoder."""
import torch
from megatron.core import tensor_parallel


class LinearForLastLayer(torch.nn.Linear):
    def __init__(self, input_size, output_size, *, config, bias=False):
        super().__init__(in_features=input_size, out_features=output_size, bias=bias)
        self.sequence_parallel = config.sequence_parallel
        if self.sequence_parallel:
            self.weight.sequence_parallel = True

    def forward(self, input_):
        logits = super().forward(input_)  # [s/tp, b, 1]
        if self.sequence_parallel:
            # the loss after this is computed identically on every tensor-parallel rank
            logits = tensor_parallel.gather_from_sequence_parallel_region(
                logits, tensor_parallel_output_grad=False
            )
        return logits


def value_loss(head, hidden, returns, mask):
    values = head(hidden).squeeze(-1)
    return ((values - returns) ** 2 * mask).sum() / mask.sum()
