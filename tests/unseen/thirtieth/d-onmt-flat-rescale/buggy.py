"""Translation of the multi-GPU gradient exchange used by a seq2seq trainer."""
import math

import torch
import torch.distributed


def all_reduce_and_rescale_tensors(tensors, rescale_denom, buffer_size=104857600):
    """All-reduce and rescale tensors in chunks of the specified size.

    Args:
        tensors: list of Tensors to all-reduce
        rescale_denom: denominator for rescaling summed Tensors
        buffer_size: all-reduce chunk size in bytes
    """
    buffer_t = tensors[0].new_empty(
        math.ceil(buffer_size / tensors[0].element_size())).zero_()
    buffer = []

    def all_reduce_buffer():
        offset = 0
        for t in buffer:
            numel = t.numel()
            buffer_t[offset:offset + numel].copy_(t.view(-1))
            offset += numel

        torch.distributed.all_reduce(buffer_t[:offset], async_op=True)  # BUG
        buffer_t.div_(rescale_denom)  # BUG

        offset = 0
        for t in buffer:
            numel = t.numel()
            t.view(-1).copy_(buffer_t[offset:offset + numel])
            offset += numel

    filled = 0
    for t in tensors:
        sz = t.numel() * t.element_size()
        if sz > buffer_size:
            torch.distributed.all_reduce(t)
            t.div_(rescale_denom)
        elif filled + sz > buffer_size:
            all_reduce_buffer()
            buffer = [t]
            filled = sz
        else:
            buffer.append(t)
            filled += sz

    if len(buffer) > 0:
        all_reduce_buffer()


class Trainer:
    def __init__(self, model, train_loss, optim, n_gpu, accum_count=4):
        self.model = model
        self.train_loss = train_loss
        self.optim = optim
        self.n_gpu = n_gpu
        self.accum_count = accum_count

    def _accum_batches(self, iterator):
        batches, normalization = [], 0
        for batch in iterator:
            batches.append(batch)
            normalization += batch["tgt"][:, 1:].ne(self.train_loss.padding_idx).sum()
            if len(batches) == self.accum_count:
                yield batches, normalization
                batches, normalization = [], 0

    def train(self, train_iter):
        for batches, normalization in self._accum_batches(train_iter):
            if self.n_gpu > 1:
                torch.distributed.all_reduce(normalization)
            self._gradient_accumulation(batches, normalization.item())

    def _gradient_accumulation(self, batches, normalization):
        self.optim.zero_grad()
        for batch in batches:
            outputs = self.model(batch["src"], batch["tgt"])
            loss = self.train_loss(outputs, batch["tgt"][:, 1:])
            (loss / normalization).backward()

        if self.n_gpu > 1:
            grads = [p.grad.data for p in self.model.parameters()
                     if p.requires_grad and p.grad is not None]
            all_reduce_and_rescale_tensors(grads, float(1))
        self.optim.step()
