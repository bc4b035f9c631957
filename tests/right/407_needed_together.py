"""Gradients under tests of `needs_input_grad`, each where it is asked for, or several of one kernel together."""
import torch
import torch.distributed as dist


class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, group):
        ctx.save_for_backward(x, weight)
        ctx.group = group
        return x @ weight.t() + bias

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        grad_x = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_x = grad @ weight
            dist.all_reduce(grad_x, group=ctx.group)
        if ctx.needs_input_grad[1]:
            grad_weight = grad.t() @ x
            grad_bias = grad.sum(dim=0)
        return grad_x, grad_weight, grad_bias, None


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, kernel, backward_kernel):
        ctx.save_for_backward(q, k, v)
        ctx.backward_kernel = backward_kernel
        return kernel(q, k, v)

    @staticmethod
    def backward(ctx, grad):
        dq = dk = dv = None
        if ctx.needs_input_grad[0]:
            dq, dk, dv = ctx.backward_kernel(grad, *ctx.saved_tensors)
        return dq, dk, dv, None, None


class Either(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        grad_a = grad_b = None
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            grad_a, grad_b = grad * b, grad * a
        return grad_a, grad_b
