"""Chunked cross entropy against a vocabulary weight stored as a DTensor."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Replicate


class ChunkedLMHeadLoss(nn.Module):
    """Every rank of the one-dimensional mesh holds other rows of the batch.

    The weight is sharded over the same mesh and is not managed by FSDP.
    """

    def __init__(self, num_chunks: int = 8, ignore_index: int = -100):
        super().__init__()
        self.num_chunks = num_chunks
        self.ignore_index = ignore_index

    def _materialize(self, weight):
        if not isinstance(weight, DTensor):
            return weight
        full = weight.redistribute(placements=[Replicate()])
        return full.to_local(grad_placements=[Partial()])

    def forward(self, hidden, labels, weight, global_num_tokens):
        weight = self._materialize(weight)
        total = torch.zeros((), dtype=torch.float32, device=hidden.device)
        for h, y in zip(hidden.chunk(self.num_chunks), labels.chunk(self.num_chunks)):
            logits = F.linear(h, weight).float()
            total = total + F.cross_entropy(
                logits, y, reduction="sum", ignore_index=self.ignore_index
            )
        return total / global_num_tokens
