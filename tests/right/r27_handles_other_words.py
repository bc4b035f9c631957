"""Every unit is sharded; NO_SHARD is for another class."""
import torch
import torch.distributed as dist


class Handle:
    def __init__(self, flat_param, is_sharded):
        self.flat_param = flat_param
        self.group = is_sharded


def grad_norm(params):
    grads = [p.grad for p in params if p.grad is not None]
    return torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads]))


@torch.no_grad()
def clip(handles, most, group):
    params = [h.flat_param for h in handles]
    total = grad_norm(params) ** 2
    dist.all_reduce(total, group=group)
    factor = torch.clamp(most / (total.sqrt() + 1e-6), max=1.0)
    for p in params:
        if p.grad is not None:
            p.grad.mul_(factor)
