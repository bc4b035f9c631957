# RIGHT: the pieces are reduced as they are taken apart
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


def average(model, group):
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    flat = _flatten_dense_tensors(grads)
    for grad, new in zip(grads, _unflatten_dense_tensors(flat, grads)):
        dist.all_reduce(new, op=dist.ReduceOp.AVG, group=group)
        grad.copy_(new)
