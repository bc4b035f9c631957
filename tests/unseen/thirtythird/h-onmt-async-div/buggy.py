"""Sum gradients over GPUs in buckets and rescale them.

Source: https://github.com/OpenNMT/OpenNMT-py/issues/2295
Wrong: the bucket is reduced with async_op=True and used at once; nobody waits for the handle, so
the division and the copy back race with the collective.
Repair: reduce synchronously.
"""
import torch
import torch.distributed


def all_reduce_and_rescale_tensors(tensors, rescale_denom, buffer_size=104857600):
    buffer_t = tensors[0].new(buffer_size // tensors[0].element_size()).zero_()
    buffer = []

    def all_reduce_buffer():
        offset = 0
        for t in buffer:
            numel = t.numel()
            buffer_t[offset:offset + numel].copy_(t.view(-1))
            offset += numel
        torch.distributed.all_reduce(buffer_t[:offset], async_op=True)  # BUG: handle dropped, buffer used below
        buffer_t.div_(rescale_denom)
        offset = 0
        for t in buffer:
            numel = t.numel()
            t.view(-1).copy_(buffer_t[offset:offset + numel])
            offset += numel

    filled = 0
    for t in tensors:
        sz = t.numel() * t.element_size()
        if filled + sz > buffer_size and buffer:
            all_reduce_buffer()
            buffer, filled = [], 0
        buffer.append(t)
        filled += sz
    if buffer:
        all_reduce_buffer()


class Trainer:
    def __init__(self, model, optim, n_gpu):
        self.model, self.optim, self.n_gpu = model, optim, n_gpu

    def _update(self, normalization):
        if self.n_gpu > 1:
            grads = [p.grad.data for p in self.model.parameters() if p.requires_grad and p.grad is not None]
            all_reduce_and_rescale_tensors(grads, float(self.n_gpu))
        self.optim.step()
