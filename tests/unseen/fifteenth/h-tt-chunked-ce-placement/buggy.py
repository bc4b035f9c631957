# Reduced from torchtitan components/loss.py ChunkedCELoss (pytorch/torchtitan pull request 3412, read).
# The loss is computed in sequence chunks; the gradients of the chunks are collected and handed to the
# decoder. With TP the activation is Replicate and lm_head is sharded over the vocabulary, so a
# chunk's gradient comes back as Partial(sum) on the tp axis.
# What happens: partial gradients are taken as already summed, the loss curve is well above the right one.
import torch
from torch.distributed.tensor import DTensor


class GradAccumulator:
    """Collects chunk gradients into one buffer with the sequence length of the reference."""

    def __init__(self, reference, seq_dim=1):
        self._seq_dim, self._offset = seq_dim, 0
        self._mesh = reference.device_mesh if isinstance(reference, DTensor) else None
        self._placements = reference.placements if isinstance(reference, DTensor) else None  # BUG
        local = reference.to_local() if isinstance(reference, DTensor) else reference
        self._buffer = torch.zeros_like(local, requires_grad=False)

    def add(self, chunk_grad):
        if isinstance(chunk_grad, DTensor):
            chunk_grad = chunk_grad.to_local()
        length = chunk_grad.size(self._seq_dim)
        self._buffer.narrow(self._seq_dim, self._offset, length).copy_(chunk_grad)
        self._offset += length

    def result(self):
        if self._mesh is None:
            return self._buffer
        return DTensor.from_local(self._buffer, self._mesh, self._placements, run_check=False)


class ChunkedCELoss:
    def __init__(self, lm_head, loss_fn, num_chunks=8):
        self.lm_head, self.loss_fn, self.num_chunks = lm_head, loss_fn, num_chunks

    def __call__(self, hidden, labels, global_valid_tokens):
        h = hidden.detach()
        accumulator = GradAccumulator(h)
        total = 0.0
        for h_chunk, label_chunk in zip(h.chunk(self.num_chunks, dim=1), labels.chunk(self.num_chunks, dim=1)):
            h_chunk = h_chunk.detach().requires_grad_(True)
            loss = self.loss_fn(self.lm_head(h_chunk), label_chunk) / global_valid_tokens
            loss.backward()
            accumulator.add(h_chunk.grad)
            total = total + loss.detach()
        hidden.backward(accumulator.result())
        return total
