# torchtitan c2a3771a4 (#3412)
"""Chunked cross entropy: lm_head and loss run chunk by chunk, the trunk backward runs once."""
import torch
from torch.distributed.tensor import DTensor


class GradAccumulator:
    """Collects the gradients of the chunks in one buffer."""

    def __init__(self, reference, seq_dim=1):
        self.seq_dim, self._next = seq_dim, 0
        self._device_mesh = self._placements = None
        if isinstance(reference, DTensor):
            self._device_mesh = reference.device_mesh
            reference = reference.to_local()
        self._buffer = torch.zeros_like(reference)

    def add(self, chunk_grad):
        if isinstance(chunk_grad, DTensor):
            self._placements = self._placements or chunk_grad.placements
            assert chunk_grad.placements == self._placements
            chunk_grad = chunk_grad.to_local()
        size = chunk_grad.size(self.seq_dim)
        self._buffer.narrow(self.seq_dim, self._next, size).copy_(chunk_grad)
        self._next += size

    def result(self):
        if self._device_mesh is None:
            return self._buffer
        return DTensor.from_local(self._buffer, self._device_mesh, self._placements, run_check=False)


def chunked_cross_entropy(hidden, lm_head, labels, loss_fn, num_chunks):
    # with tensor parallelism: hidden is a Replicate DTensor, lm_head is ColwiseParallel, loss_fn loss-parallel
    acc, total = GradAccumulator(hidden), 0.0
    for h, y in zip(hidden.detach().chunk(num_chunks, dim=1), labels.chunk(num_chunks, dim=1)):
        h = h.detach().requires_grad_(True)
        loss = loss_fn(lm_head(h), y)
        loss.backward()
        acc.add(h.grad)
        total = total + loss.detach()
    hidden.backward(acc.result())
    return total
