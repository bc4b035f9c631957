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
        scores = scaled_scores(self.gate(x), self.group)
        x = Copy.apply(x, self.group)
        out = self.expert(x) * scores[..., self.own]
        return Reduce.apply(out, self.group)


def scaled_scores(logits, group):
    return Copy.apply(logits.softmax(-1), group)
