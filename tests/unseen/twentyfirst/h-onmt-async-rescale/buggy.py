"""All-reduce a list of gradients through one flat buffer."""
import torch
import torch.distributed


def all_reduce_and_rescale_tensors(tensors, rescale_denom):
    buffer_t = torch.cat([t.reshape(-1) for t in tensors])
    torch.distributed.all_reduce(buffer_t, async_op=True)  # BUG: the handle is dropped
    buffer_t.div_(rescale_denom)
    offset = 0
    for t in tensors:
        numel = t.numel()
        t.view(-1).copy_(buffer_t[offset:offset + numel])
        offset += numel


class Trainer:
    def __init__(self, model, optim, n_gpu):
        self.model, self.optim, self.n_gpu = model, optim, n_gpu

    def _gradient_step(self, loss):
        self.optim.zero_grad()
        loss.backward()
        if self.n_gpu > 1:
            grads = [p.grad.data for p in self.model.parameters() if p.requires_grad and p.grad is not None]
            all_reduce_and_rescale_tensors(grads, float(self.n_gpu))
        self.optim.step()
