"""Cross entropy in chunks: collect the gradient of the hidden states."""
import torch
from torch.distributed.tensor import DTensor


class GradAccumulator:
    """Writes the chunk gradients into one buffer."""

    def __init__(self, reference: DTensor):
        self.mesh, self.placements = reference.device_mesh, None
        self.buffer = torch.zeros_like(reference.to_local())
        self.offset = 0

    def add(self, chunk_grad: DTensor):
        self.placements = chunk_grad.placements
        local = chunk_grad.to_local()
        self.buffer[:, self.offset:self.offset + local.shape[1]] = local
        self.offset += local.shape[1]

    def result(self):
        return DTensor.from_local(self.buffer, self.mesh, self.placements, run_check=False)


def chunked_loss(hidden: DTensor, lm_head, loss_fn, labels, n):
    # hidden is Replicate on tp, lm_head is column parallel: its input gradient is Partial on tp
    acc = GradAccumulator(hidden)
    for h, y in zip(hidden.detach().chunk(n, dim=1), labels.chunk(n, dim=1)):
        h.requires_grad_(True)
        loss_fn(lm_head(h), y).backward()
        acc.add(h.grad)
    hidden.backward(acc.result())
