"""All-reduce the gradients in buckets and rescale them."""
import torch
import torch.distributed


def all_reduce_and_rescale_tensors(tensors, rescale_denom, buffer_size=10485760):
    buffer_t = tensors[0].new(buffer_size // tensors[0].element_size()).zero_()
    buffer = []

    def all_reduce_buffer():
        offset = 0
        for t in buffer:
            numel = t.numel()
            buffer_t[offset:offset + numel].copy_(t.view(-1))
            offset += numel
        torch.distributed.all_reduce(buffer_t[:offset], async_op=True)
        buffer_t.div_(rescale_denom)  # BUG: the all-reduce may not be finished
        offset = 0
        for t in buffer:
            numel = t.numel()
            t.view(-1).copy_(buffer_t[offset:offset + numel])
            offset += numel

    filled = 0
    for t in tensors:
        sz = t.numel() * t.element_size()
        if filled + sz > buffer_size:
            all_reduce_buffer()
            buffer, filled = [], 0
        buffer.append(t)
        filled += sz
    if buffer:
        all_reduce_buffer()
