import torch
from torch.distributed.tensor import DTensor


class Collected:
    def __init__(self, hidden):
        self.hidden, self.chunk_grads = hidden, []

    def add(self, chunk_grad):
        self.chunk_grads.append(chunk_grad)

    def result(self):
        return DTensor.from_local(
            torch.cat([g.to_local() for g in self.chunk_grads], dim=1),
            self.hidden.device_mesh,
            self.hidden.placements,
        )


def run(hidden, head, n):
    acc = Collected(hidden)
    for chunk in hidden.detach().chunk(n, dim=1):
        chunk.requires_grad_()
        head(chunk).backward()
        acc.add(chunk.grad.redistribute(placements=hidden.placements))
    return acc.result()
