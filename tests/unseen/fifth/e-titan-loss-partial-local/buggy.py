"""Report the loss of a loss-parallel model."""
import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard


def log_loss(token_loss, mesh):
    # token_loss: per-token losses of this rank's part of the batch
    loss = DTensor.from_local(token_loss.sum(), mesh, [Partial()])
    value = loss.to_local()  # BUG: one rank's term of the sum
    return {"loss": value.item()}
