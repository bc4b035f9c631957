"""Chunked cross entropy: lm_head and loss per sequence chunk, one backward through the decoder."""
import torch
from torch.distributed.tensor import DTensor, Replicate


class GradAccumulator:
    """Accumulates chunk gradients into a pre-allocated buffer."""

    def __init__(self, reference, *, num_chunks, seq_dim=1, dtype=torch.float32):
        self.num_chunks, self.seq_dim, self._next_idx = num_chunks, seq_dim, 0
        self._device_mesh = None
        self._placements = None
        if isinstance(reference, DTensor):
            self._device_mesh = reference.device_mesh
            local = reference.to_local()
        else:
            local = reference
        self._buffer = torch.zeros_like(local, dtype=dtype)

    def add(self, chunk_grad):
        if isinstance(chunk_grad, DTensor):
            if self._placements is None:
                self._placements = chunk_grad.placements
            elif chunk_grad.placements != self._placements:
                raise ValueError(f"chunk_grad placement {chunk_grad.placements} does not match {self._placements}")
            chunk_grad = chunk_grad.to_local()
        chunk_seq_len = chunk_grad.shape[self.seq_dim]
        self._buffer.narrow(self.seq_dim, self._next_idx * chunk_seq_len, chunk_seq_len).copy_(chunk_grad)
        self._next_idx += 1

    def result(self):
        if self._device_mesh is not None:
            return DTensor.from_local(self._buffer, device_mesh=self._device_mesh, placements=self._placements)
        return self._buffer


def chunked_ce_loss(hidden_states, labels, lm_head, loss_fn, num_chunks, global_valid_tokens):
    # hidden_states: DTensor on the TP mesh; lm_head: ColwiseParallel (weight Shard(0)),
    # its logits stay sharded over the vocabulary for the loss-parallel loss_fn
    hidden_states = hidden_states.redistribute(placements=(Replicate(),))
    detached = hidden_states.detach()
    accumulator = GradAccumulator(detached, num_chunks=num_chunks, dtype=detached.dtype)
    total_loss = 0.0
    for h_chunk, label_chunk in zip(detached.chunk(num_chunks, dim=1), labels.chunk(num_chunks, dim=1)):
        h_chunk = h_chunk.detach().requires_grad_(True)
        loss = loss_fn(lm_head(h_chunk), label_chunk) / global_valid_tokens
        loss.backward()
        accumulator.add(h_chunk.grad)
        total_loss = total_loss + loss.detach()
    hidden_states.backward(accumulator.result())
    return total_loss
