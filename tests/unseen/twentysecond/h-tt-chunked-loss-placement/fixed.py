"""Chunked cross entropy over a vocabulary-sharded lm_head (pytorch/torchtitan#3418)."""
import torch
from torch.distributed.tensor import DTensor


class GradAccumulator:
    def __init__(self, reference: DTensor):
        self.mesh, self.placements = reference.device_mesh, None
        self.parts = []

    def add(self, chunk_grad: DTensor):
        self.placements = chunk_grad.placements
        self.parts.append(chunk_grad.to_local())

    def result(self):
        grad = torch.cat(self.parts, dim=1)
        return DTensor.from_local(grad, self.mesh, self.placements, run_check=False)


def chunked_loss(hidden: DTensor, labels, lm_head, loss_fn, num_chunks):
    # hidden: Replicate on tp; lm_head.weight: Shard(0) on tp
    acc, total = GradAccumulator(hidden), 0.0
    for h, y in zip(hidden.detach().chunk(num_chunks, dim=1), labels.chunk(num_chunks, dim=1)):
        h = h.detach().requires_grad_()
        loss = loss_fn(lm_head(h), y)
        loss.backward()
        total += loss.detach()
        acc.add(h.grad)
    hidden.backward(acc.result())
    return total
