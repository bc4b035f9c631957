"""Backwards whose returns differ in length, class methods, and code behind a return."""

import torch


class Residual(torch.autograd.Function):
    """Arguments at the end may be left out: each return is for a number of them."""

    @staticmethod
    def forward(x, weight, scale, res=None):
        out = x @ weight * scale
        return out if res is None else out + res

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, scale, *rest = inputs
        ctx.save_for_backward(x, weight)
        ctx.scale = scale
        ctx.num_inputs = len(inputs)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        gradients = (grad @ weight.t() * ctx.scale, x.t() @ grad * ctx.scale, None)
        if ctx.num_inputs == 4:
            return gradients[0], gradients[1], None, grad
        return gradients[0], gradients[1], None


def residual(x, weight, res):
    return Residual.apply(x, weight, 1.0) + Residual.apply(x, weight, 1.0, res)


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(x, scale, res=None):
        return x * scale if res is None else x * scale + res

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.scale = inputs[1]
        ctx.num_inputs = len(inputs)

    @staticmethod
    def backward(ctx, grad):
        gradients = (grad * ctx.scale, None)
        if ctx.num_inputs == 3:
            return gradients + (grad,)
        return gradients


def scaled(x, res):
    return Scaled.apply(x, 2.0, res)


class Gated(torch.autograd.Function):
    """Methods of the class: the context is the second parameter."""

    @classmethod
    def forward(cls, ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @classmethod
    def backward(cls, ctx, grad):
        x, w = ctx.saved_tensors
        return grad * w, grad * x


class Sparse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, algorithm, backend):
        ctx.dense = backend is None
        return x

    @staticmethod
    def backward(ctx, grad):
        if ctx.dense:
            return grad, None, None
        return grad * 1.0, None, None
        return grad, None


class Chained:
    """A variable that is made of itself, as the base of a class."""


def patched(tokenizer):
    if hasattr(tokenizer, "tokenizer"):
        tokenizer = tokenizer.tokenizer

    class Cached(tokenizer.__class__):
        @property
        def special(self):
            return tokenizer.special

    return Cached
