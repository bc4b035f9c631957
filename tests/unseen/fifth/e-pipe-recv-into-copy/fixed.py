"""Receive an activation gradient from the next stage."""
import torch
import torch.distributed as dist


def backward_stage(output, input_, next_rank, prev_rank):
    grad = torch.empty_like(output).transpose(0, 1)
    grad = grad.contiguous()
    dist.recv(grad, src=next_rank)
    torch.autograd.backward(output.transpose(0, 1), grad)
    if prev_rank is not None:
        dist.send(input_.grad.contiguous(), dst=prev_rank)
    return grad
