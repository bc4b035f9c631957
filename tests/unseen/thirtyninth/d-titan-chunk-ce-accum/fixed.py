"""Cross entropy in chunks of the sequence, hidden gradient collected in one buffer."""
import torch
import torch.nn.functional as F
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel


class GradAccumulator:
    def __init__(self, reference, num_chunks):
        self.reference = reference
        local = reference.to_local() if isinstance(reference, DTensor) else reference
        self.buffer = torch.zeros_like(local)
        self.step = local.shape[1] // num_chunks
        self.filled = 0
        self.placements = None

    def add(self, chunk_grad):
        if isinstance(chunk_grad, DTensor):
            if self.placements is None:
                self.placements = chunk_grad.placements
            chunk_grad = chunk_grad.to_local()
        lo = self.filled * self.step
        self.buffer[:, lo : lo + self.step].copy_(chunk_grad)
        self.filled += 1

    def result(self):
        if not isinstance(self.reference, DTensor):
            return self.buffer
        return DTensor.from_local(
            self.buffer,
            self.reference.device_mesh,
            self.placements,
            run_check=False,
        )


class ChunkedCELoss:
    """lm_head is column parallel and keeps its logits sharded on the vocabulary."""

    def __init__(self, num_chunks):
        self.num_chunks = num_chunks

    def __call__(self, hidden, labels, lm_head, num_tokens):
        acc = GradAccumulator(hidden, self.num_chunks)
        total = 0.0
        chunks = hidden.detach().chunk(self.num_chunks, dim=1)
        for h, y in zip(chunks, labels.chunk(self.num_chunks, dim=1)):
            h = h.requires_grad_(True)
            with loss_parallel():
                logits = lm_head(h).flatten(0, 1)
                loss = F.cross_entropy(logits, y.flatten(), reduction="sum") / num_tokens
                loss.backward()
            acc.add(h.grad)
            total = total + loss.detach()
        hidden.backward(acc.result())
        return total
