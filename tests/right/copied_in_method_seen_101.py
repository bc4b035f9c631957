import torch
import torch.distributed as dist


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Experts(torch.nn.Module):
    def __init__(self, gate, expert, own, group):
        super().__init__()
        self.gate, self.expert = gate, expert
        self.own, self.group = own, group

    def forward(self, x):
        scores = self.gate(x).softmax(-1)
        out = self.expert(Copy.apply(x, self.group)) * self.weight_of(scores)
        return Reduce.apply(out, self.group)

    def weight_of(self, scores):
        return Copy.apply(scores, self.group)[..., self.own]
