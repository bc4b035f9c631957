"""Cross entropy in sequence chunks with a hand-driven backward.
pytorch/torchtitan #3412, "Fix ChunkedCELoss + TP gradient placement mismatch".
"""
import torch
import torch.nn.functional as F
from torch.distributed.tensor import DTensor


class GradAccumulator:
    def __init__(self, reference: torch.Tensor, seq_dim: int = 1, dtype=torch.float32):
        self.seq_dim = seq_dim
        self._offset = 0
        self._device_mesh = None
        self._placements = None
        if isinstance(reference, DTensor):
            self._device_mesh = reference.device_mesh
            self._placements = reference.placements  # BUG
            reference = reference.to_local()
        self._buffer = torch.zeros_like(reference, dtype=dtype)

    def add(self, chunk_grad: torch.Tensor) -> None:
        if isinstance(chunk_grad, DTensor):
            chunk_grad = chunk_grad.to_local()
        n = chunk_grad.size(self.seq_dim)
        self._buffer.narrow(self.seq_dim, self._offset, n).copy_(chunk_grad)
        self._offset += n

    def result(self) -> torch.Tensor:
        if self._device_mesh is None:
            return self._buffer
        return DTensor.from_local(self._buffer, self._device_mesh, self._placements, run_check=False)


def chunked_cross_entropy(hidden, lm_head, labels, num_chunks):
    """hidden: Replicate on tp; lm_head: ColwiseParallel, its logits stay sharded for loss parallel."""
    detached = hidden.detach()
    grads = GradAccumulator(detached)
    total = 0.0
    for h, y in zip(detached.chunk(num_chunks, dim=1), labels.chunk(num_chunks, dim=1)):
        h = h.detach().requires_grad_()
        logits = lm_head(h)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), y.flatten(0, 1), reduction="sum")
        loss.backward()
        grads.add(h.grad)
        total = total + loss.detach()
    hidden.backward(grads.result().to(hidden.dtype))
    return total
