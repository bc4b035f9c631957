# Source: pytorch/torchtitan commit c2a3771a4 (PR #3412), torchtitan/components/loss.py
# The chunk gradients come back as Partial(sum) on TP (column-parallel lm_head). Their local values
# were put in a buffer that was labelled with the placements of the activation (Replicate), so
# the missing sum over TP is never done.
# Repair: take the placements from the chunk gradients.
import torch
import torch.nn as nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement


class GradAccumulator:
    """Accumulates chunk gradients into a pre-allocated buffer."""

    def __init__(self, reference: torch.Tensor, *, num_chunks: int, seq_dim: int = 1, dtype: torch.dtype):
        self.num_chunks = num_chunks
        self.seq_dim = seq_dim
        self._next_idx = 0
        self._device_mesh: DeviceMesh | None = None
        self._placements: tuple[Placement, ...] | None = None

        if isinstance(reference, DTensor):
            self._device_mesh = reference.device_mesh
            self._placements = reference.placements  # BUG
            local = reference.to_local()
        else:
            local = reference
        self._buffer = torch.zeros_like(local, dtype=dtype)

    def add(self, chunk_grad: torch.Tensor) -> None:
        if isinstance(chunk_grad, DTensor):
            chunk_grad = chunk_grad.to_local()
        chunk_seq_len = chunk_grad.shape[self.seq_dim]
        start = self._next_idx * chunk_seq_len
        self._buffer.narrow(self.seq_dim, start, chunk_seq_len).copy_(chunk_grad)
        self._next_idx += 1

    def result(self) -> torch.Tensor:
        if self._device_mesh is not None:
            return DTensor.from_local(
                self._buffer,
                device_mesh=self._device_mesh,
                placements=self._placements,
            )
        return self._buffer


def chunked_ce_loss(hidden_states: DTensor, labels, lm_head: nn.Module, ce_loss, num_chunks: int):
    # hidden_states: Replicate on tp; lm_head: ColwiseParallel, logits stay sharded on the vocabulary
    h = hidden_states.detach()
    accumulator = GradAccumulator(h, num_chunks=num_chunks, dtype=torch.float32)
    total = 0.0
    for h_chunk, label_chunk in zip(h.chunk(num_chunks, dim=1), labels.chunk(num_chunks, dim=1)):
        h_chunk = h_chunk.detach().requires_grad_()
        loss = ce_loss(lm_head(h_chunk), label_chunk)
        loss.backward()
        accumulator.add(h_chunk.grad)
        total = total + loss.detach()
    hidden_states.backward(accumulator.result().to(hidden_states.dtype))
    return total
