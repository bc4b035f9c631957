# RIGHT: the stub for machines without torch.distributed: one process, nothing to sum
import torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

assert not torch.distributed.is_available()


def average(model):
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    flat = _flatten_dense_tensors(grads)
    for grad, new in zip(grads, _unflatten_dense_tensors(flat, grads)):
        grad.copy_(new)
