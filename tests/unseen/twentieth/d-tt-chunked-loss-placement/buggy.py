"""Chunked cross entropy: collect the gradient of the hidden states chunk by chunk."""
import torch
from torch.distributed.tensor import DTensor


class GradAccumulator:
    def __init__(self, reference: DTensor):
        self.reference = reference  # Replicate on tp
        self.chunk_grads = []

    def add(self, chunk_grad: DTensor):
        self.chunk_grads.append(chunk_grad)

    def result(self):
        return DTensor.from_local(
            torch.cat([g.to_local() for g in self.chunk_grads], dim=1),
            self.reference.device_mesh,
            self.reference.placements,  # BUG: Replicate, but the chunks are partial sums
            run_check=False,
        )


def chunked_backward(hidden, labels, lm_head, loss_fn, num_chunks):
    # lm_head is column-wise parallel: the gradient of its input is Partial on tp
    acc = GradAccumulator(hidden)
    for h, y in zip(hidden.detach().chunk(num_chunks, dim=1), labels.chunk(num_chunks, dim=1)):
        h.requires_grad_()
        loss_fn(lm_head(h), y).backward()
        acc.add(h.grad)
    hidden.backward(acc.result())
