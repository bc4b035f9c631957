"""All-reduce and rescale gradients in flat buffers."""
import torch
import torch.distributed


def all_reduce_and_rescale_tensors(tensors, rescale_denom, buffer_size=104857600):
    buffer_t = tensors[0].new(buffer_size // tensors[0].element_size()).zero_()
    buffer, filled = [], 0

    def all_reduce_buffer():
        offset = 0
        for t in buffer:
            buffer_t[offset:offset + t.numel()].copy_(t.view(-1))
            offset += t.numel()
        torch.distributed.all_reduce(buffer_t[:offset])
        buffer_t.div_(rescale_denom)
        offset = 0
        for t in buffer:
            t.view(-1).copy_(buffer_t[offset:offset + t.numel()])
            offset += t.numel()

    for t in tensors:
        if filled + t.numel() > buffer_t.numel():
            all_reduce_buffer()
            buffer.clear()
            filled = 0
        buffer.append(t)
        filled += t.numel()
    if buffer:
        all_reduce_buffer()
