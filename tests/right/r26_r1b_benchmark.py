# RIGHT: a microbenchmark of the two functions, without any ranks
import time
import torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


def bench(model, rounds=100):
    grads = [p.grad for p in model.parameters()]
    torch.cuda.synchronize()
    start = time.time()
    for _ in range(rounds):
        flat = _flatten_dense_tensors(grads)
        for grad, new in zip(grads, _unflatten_dense_tensors(flat, grads)):
            grad.copy_(new)
    torch.cuda.synchronize()
    return (time.time() - start) / rounds
