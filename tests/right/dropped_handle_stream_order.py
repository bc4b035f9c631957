"""Collectives of one group end in the order in which they start: the last one is waited for."""
import torch
import torch.distributed as dist


def start(grad, group):
    return dist.all_reduce(grad, group=group, async_op=True)


def reduce_all(grads, group):
    """one group, one stream: when the last has come all have"""
    for g in grads[:-1]:
        start(g, group)
    last = start(grads[-1], group)
    last.wait()
    for g in grads:
        g.div_(dist.get_world_size(group))
