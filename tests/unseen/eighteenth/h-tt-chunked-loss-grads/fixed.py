"""Chunked cross entropy: run head and loss on pieces of the sequence, one backward for the trunk.

Source: pytorch/torchtitan, pull request #3412. With a vocabulary-sharded head the gradient of a
chunk is Partial over the tensor ranks, but the collected gradient is labelled with the placement
of the activations (Replicate). The trunk takes one rank's part for the whole sum.
"""
import torch
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, loss_parallel, parallelize_module


def parallelize_head(model, tp_mesh):
    parallelize_module(model, tp_mesh, {
        "lm_head": ColwiseParallel(
            input_layouts=Replicate(), output_layouts=Shard(-1), use_local_output=False
        ),
    })


class GradAccumulator:
    def __init__(self, reference: DTensor, num_chunks):
        self.reference = reference
        self.buffer = torch.zeros_like(reference.to_local())
        self.size = self.buffer.size(1) // num_chunks
        self.placements = None

    def add(self, chunk_grad: DTensor, index):
        if self.placements is None:
            self.placements = chunk_grad.placements
        piece = self.buffer.narrow(1, index * self.size, self.size)
        piece.copy_(chunk_grad.to_local())

    def result(self):
        return DTensor.from_local(
            self.buffer,
            self.reference.device_mesh,
            self.placements,
            run_check=False,
        )


def chunked_loss_backward(hidden: DTensor, lm_head, labels, loss_fn, num_chunks):
    # hidden: [b, s, h], Replicate on the tensor mesh, output of the trunk; s % num_chunks == 0
    accumulator = GradAccumulator(hidden, num_chunks)
    total = 0.0
    pieces = hidden.detach().chunk(num_chunks, dim=1)
    for i, (piece, target) in enumerate(zip(pieces, labels.chunk(num_chunks, dim=1))):
        piece = piece.detach().requires_grad_()
        with loss_parallel():
            loss = loss_fn(lm_head(piece).flatten(0, 1), target.flatten())
            loss.backward()
        accumulator.add(piece.grad, i)
        total = total + loss.detach()
    hidden.backward(accumulator.result())
    return total
