import torch
from torch.distributed.tensor import DTensor, Shard


class LossInput(torch.nn.Module):
    """Logits of the vocabulary's parts become one distributed tensor."""

    def forward(self, logits, labels, tp_mesh):
        # logits: (batch, sequence, vocab)
        logits = DTensor.from_local(logits, tp_mesh, [Shard(2)])
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
