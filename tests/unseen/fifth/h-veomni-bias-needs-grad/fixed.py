"""Output projection fused with its all-to-all."""
import torch
import torch.distributed as dist


def all_to_all(x, group):
    out = torch.empty_like(x)
    dist.all_to_all_single(out, x.contiguous(), group=group)
    return out


class UlyssesOutputProjection(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, bias, group):
        hidden = all_to_all(hidden, group)
        ctx.save_for_backward(hidden, weight)
        ctx.group = group
        return torch.nn.functional.linear(hidden, weight, bias)

    @staticmethod
    def backward(ctx, grad):
        hidden, weight = ctx.saved_tensors
        grad_hidden = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_hidden = all_to_all(grad @ weight, ctx.group)
        if ctx.needs_input_grad[1]:
            grad_weight = grad.flatten(0, -2).t() @ hidden.flatten(0, -2)
        if ctx.needs_input_grad[2]:
            grad_bias = grad.flatten(0, -2).sum(dim=0)
        return grad_hidden, grad_weight, grad_bias, None
