"""All-reduce of the gradients as one flat tensor.

Reduced from facebookresearch/fairseq d7d82715f9 (Fix all-reduce for new versions of PyTorch).
"""
import torch
import torch.distributed as dist


class Trainer:
    def __init__(self, model, criterion, optimizer):
        self.model, self.criterion, self.optimizer = model, criterion, optimizer

    def train_step(self, sample, grad_denom):
        self.optimizer.zero_grad()  # the next backward allocates new gradients
        loss = self.criterion(self.model, sample)
        loss.backward()

        flat_grads = self._flat_model_grads()
        dist.all_reduce(flat_grads)
        flat_grads.div_(grad_denom)
        self._set_model_grads_(flat_grads)

        self.optimizer.step()
        return loss.detach()

    def _model_grads(self):
        return [p.grad for p in self.model.parameters() if p.requires_grad]

    def _flat_model_grads(self):
        return torch.cat([grad.view(-1) for grad in self._model_grads()])

    def _set_model_grads_(self, flat_grads):
        offset = 0
        for grad in self._model_grads():
            grad.copy_(flat_grads[offset : offset + grad.numel()].view_as(grad))
            offset += grad.numel()
