"""Receive an activation gradient from the next stage."""
import torch
import torch.distributed as dist


def backward_stage(output, input_, next_rank, prev_rank):
    grad = torch.empty_like(output).transpose(0, 1)
    dist.recv(grad.contiguous(), src=next_rank)  # BUG: received into a copy
    torch.autograd.backward(output.transpose(0, 1), grad)
    if prev_rank is not None:
        dist.send(input_.grad.contiguous(), dst=prev_rank)
    return grad
