"""All-reduce of the gradients as one flat tensor.

Reduced from facebookresearch/fairseq d7d82715f9 (Fix all-reduce for new versions of PyTorch).
"""
import torch
import torch.distributed as dist


class Trainer:
    def __init__(self, model, criterion, optimizer):
        self.model, self.criterion, self.optimizer = model, criterion, optimizer
        self.flat_grads = None

    def train_step(self, sample, grad_denom):
        self.optimizer.zero_grad()  # the next backward allocates new gradients
        loss = self.criterion(self.model, sample)
        loss.backward()

        if self.flat_grads is None:
            self.flat_grads = self._flatten_grads_()
        dist.all_reduce(self.flat_grads)  # BUG: the views of the first step, p.grad is no longer one of them
        self.flat_grads.div_(grad_denom)

        self.optimizer.step()
        return loss.detach()

    def _flatten_grads_(self):
        """Move the gradients into one contiguous buffer, of which they become views."""
        params = [p for p in self.model.parameters() if p.requires_grad]
        flat_grads = torch.cat([p.grad.view(-1) for p in params])
        offset = 0
        for p in params:
            p.grad = flat_grads[offset : offset + p.numel()].view_as(p)
            offset += p.numel()
        return flat_grads
