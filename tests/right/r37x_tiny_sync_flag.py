import torch
import torch.distributed as dist


def sync_grad(grad, async_op=True):
    if async_op:
        work = dist.all_reduce(grad, async_op=True)
    else:
        dist.all_reduce(grad, async_op=False)
        work = None
    return work


def linear_backward(x, grad_out):
    grad_weight = grad_out.t() @ x
    handle = sync_grad(grad_weight)
    grad_in = grad_out @ x.new_ones(grad_out.shape[1], x.shape[1])
    handle.wait()
    return grad_in, grad_weight


def embedding_backward(grad_weight):
    sync_grad(grad_weight, async_op=False)
    return grad_weight
