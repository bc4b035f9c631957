"""SPMD310 false: `to_local()` inside of `autograd.Function.forward` has no autograd; the backward places the gradients itself."""
import torch
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard


class LinearReplicated(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: DTensor, weight: DTensor):
        ctx.device_mesh = x.device_mesh
        ctx.placements_x = x.placements
        # the weight is replicated on all device mesh dimensions
        ctx.placements_grad = [Partial("sum") if isinstance(p, Shard) else Replicate() for p in x.placements]
        x_local = x.to_local()
        weight_local = weight.to_local()
        ctx.save_for_backward(x_local, weight_local)
        output_local = F.linear(x_local, weight_local)
        return DTensor.from_local(output_local, x.device_mesh, x.placements)

    @staticmethod
    def backward(ctx, grad_output: DTensor):
        x_local, weight_local = ctx.saved_tensors
        g = grad_output.to_local()
        grad_x = DTensor.from_local(g @ weight_local, ctx.device_mesh, ctx.placements_x)
        grad_w = DTensor.from_local(g.flatten(0, -2).t() @ x_local.flatten(0, -2), ctx.device_mesh, ctx.placements_grad)
        return grad_x, grad_w
