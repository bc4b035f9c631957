"""Ulysses output projection as one autograd Function (ByteDance-Seed/VeOmni#1080)."""
import torch
import torch.distributed as dist


def all_to_all(x, group):
    out = torch.empty_like(x)
    dist.all_to_all_single(out, x.contiguous(), group=group)
    return out


class UlyssesOutputProjection(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, proj_weight, proj_bias, group):
        # hidden: [tokens, dim], exchanged back to the sequence layout first
        hidden = all_to_all(hidden, group)
        ctx.save_for_backward(hidden, proj_weight)
        ctx.group = group
        out = hidden @ proj_weight.t()
        return out if proj_bias is None else out + proj_bias

    @staticmethod
    def backward(ctx, grad_out):
        hidden, proj_weight = ctx.saved_tensors
        grad_weight = grad_bias = None
        grad_hidden = all_to_all(grad_out @ proj_weight, ctx.group)
        if ctx.needs_input_grad[1]:
            grad_weight = grad_out.t() @ hidden
        if ctx.needs_input_grad[1]:  # BUG: the bias is input 2, a frozen weight drops its gradient
            grad_bias = grad_out.sum(dim=0)
        return grad_hidden, grad_weight, grad_bias, None
