"""Gradient reduction helpers and the multi-GPU training step."""
import math

import torch
import torch.distributed


def is_master(opt, device_id):
    return opt.gpu_ranks[device_id] == 0


def all_reduce_and_rescale_tensors(tensors, rescale_denom, buffer_size=104857600):
    """All-reduce and rescale tensors in chunks of the specified size.

    Args:
        tensors: list of tensors to all-reduce
        rescale_denom: denominator for rescaling summed tensors
        buffer_size: all-reduce chunk size in bytes
    """
    buffer_t = tensors[0].new(math.ceil(buffer_size / tensors[0].element_size())).zero_()
    buffer = []

    def all_reduce_buffer():
        offset = 0
        for t in buffer:
            numel = t.numel()
            buffer_t[offset : offset + numel].copy_(t.view(-1))
            offset += numel

        torch.distributed.all_reduce(buffer_t[:offset])
        buffer_t.div_(rescale_denom)

        offset = 0
        for t in buffer:
            numel = t.numel()
            t.view(-1).copy_(buffer_t[offset : offset + numel])
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
    def __init__(self, model, train_loss, optim, n_gpu, accum_count=1, max_grad_norm=0.0):
        self.model = model
        self.train_loss = train_loss
        self.optim = optim
        self.n_gpu = n_gpu
        self.accum_count = accum_count
        self.max_grad_norm = max_grad_norm

    def _total_tokens(self, batches):
        tokens = sum(b["tgt"][:, 1:].ne(self.train_loss.padding_idx).sum() for b in batches)
        tokens = tokens.to(torch.float32)
        if self.n_gpu > 1:
            torch.distributed.all_reduce(tokens)
        return tokens.item()

    def step(self, batches):
        normalization = self._total_tokens(batches)
        self.optim.zero_grad()
        total_loss = 0.0
        for batch in batches:
            model_out, attns = self.model(batch["src"], batch["tgt"], batch["srclen"])
            loss = self.train_loss(batch, model_out, attns)
            (loss.sum() / normalization).backward()
            total_loss += loss.sum().item()
        if self.n_gpu > 1:
            grads = [
                p.grad.data
                for p in self.model.parameters()
                if p.requires_grad and p.grad is not None
            ]
            all_reduce_and_rescale_tensors(grads, float(1))
        if self.max_grad_norm > 0:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.max_grad_norm)
        self.optim.step()
        return total_loss / normalization
