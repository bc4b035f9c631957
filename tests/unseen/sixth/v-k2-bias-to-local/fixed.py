"""Bias of a row-parallel linear, stored as a DTensor."""
import torch
from torch.distributed.tensor import DTensor, Partial, Replicate


class RowBias(torch.nn.Module):
    def __init__(self, bias: DTensor):
        super().__init__()
        self.bias = torch.nn.Parameter(bias)  # Replicate on tp

    def forward(self, x_local):
        # x_local: this TP rank's slice of the sequence
        return x_local + self.bias.to_local(grad_placements=[Partial()])
