"""Cross entropy in chunks of the sequence: the gradients of the chunks share one buffer.

Reduced from pytorch/torchtitan c2a3771a44 ([loss] Fix ChunkedCELoss + TP gradient placement
mismatch, #3412).
"""
import torch
from torch.distributed.tensor import DTensor


class GradAccumulator:
    def __init__(self, reference, num_chunks, seq_dim=1):
        self.seq_dim, self.num_chunks, self._next_idx = seq_dim, num_chunks, 0
        self._device_mesh, self._placements = None, None
        local = reference
        if isinstance(reference, DTensor):
            self._device_mesh = reference.device_mesh
            self._placements = reference.placements  # BUG: Replicate activation, but its gradient is Partial on TP
            local = reference.to_local()
        self._buffer = torch.zeros_like(local)

    def add(self, chunk_grad):
        if isinstance(chunk_grad, DTensor):
            chunk_grad = chunk_grad.to_local()
        self._buffer.chunk(self.num_chunks, dim=self.seq_dim)[self._next_idx].copy_(chunk_grad)
        self._next_idx += 1

    def result(self):
        if self._device_mesh is None:
            return self._buffer
        return DTensor.from_local(self._buffer, self._device_mesh, self._placements, run_check=False)


def chunked_ce_loss(lm_head, hidden_states, labels, loss_fn, num_chunks):
    """hidden_states: Replicate on TP; lm_head: ColwiseParallel, vocabulary-sharded logits."""
    grads, total = GradAccumulator(hidden_states, num_chunks), 0.0
    for h, y in zip(hidden_states.detach().chunk(num_chunks, 1), labels.chunk(num_chunks, 1)):
        h.requires_grad_(True)
        loss = loss_fn(lm_head(h), y)
        loss.backward()
        grads.add(h.grad)
        total = total + loss.detach()
    hidden_states.backward(grads.result())
    return total
