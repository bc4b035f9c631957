"""Redistribute of a DTensor with its autograd Function.

After pytorch/pytorch PR #121653 (torch/distributed/_tensor/_redistribute.py and api.py).
"""
import torch
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._redistribute import redistribute_local_tensor


class Redistribute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, device_mesh, placements):
        current_spec = input._spec
        ctx.current_spec = current_spec
        if current_spec.placements != placements:
            target_spec = DTensorSpec(device_mesh, placements, tensor_meta=current_spec.tensor_meta)
            output = redistribute_local_tensor(input._local_tensor, current_spec, target_spec)
        else:
            # same placement: keep the local tensor
            output, target_spec = input._local_tensor, current_spec
        return DTensor(output, target_spec, requires_grad=input.requires_grad)

    @staticmethod
    def backward(ctx, grad_output):
        previous_spec = ctx.current_spec
        # the gradient of a Partial input is kept replicated
        placements = tuple(Replicate() if p.is_partial() else p for p in previous_spec.placements)
        grad_spec = DTensorSpec(
            previous_spec.device_mesh, placements, tensor_meta=grad_output._spec.tensor_meta
        )
        local = grad_output._local_tensor
        if grad_output._spec.placements != placements:
            local = redistribute_local_tensor(local, grad_output._spec, grad_spec)
        return DTensor(local, grad_spec, requires_grad=grad_output.requires_grad), None, None


def redistribute(dtensor, placements):
    placements = tuple(placements)
    return Redistribute.apply(dtensor, dtensor.device_mesh, placements)


class ScaleNorm(torch.nn.Module):
    """RMS norm over local activations; the weight is a replicated DTensor."""

    def __init__(self, weight: DTensor, eps=1e-6):
        super().__init__()
        self.weight = torch.nn.Parameter(weight)
        self.eps = eps

    def forward(self, x_local):
        # x_local: this rank's slice of the sequence, so the weight gradient is a partial sum
        w = redistribute(self.weight, (Replicate(),)).to_local(grad_placements=(Partial(),))
        return x_local * torch.rsqrt(x_local.pow(2).mean(-1, keepdim=True) + self.eps) * w


def sgd_step(module, lr):
    with torch.no_grad():
        for p in module.parameters():
            p.to_local().sub_(p.grad.to_local(), alpha=lr)
            p.grad = None
