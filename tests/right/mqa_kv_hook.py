"""Multi-query attention: the one key-value head is on every tp rank, its gradient is summed by a hook set elsewhere."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class SumBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class SumForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        out = x.clone()
        dist.all_reduce(out, group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class MQA(nn.Module):
    def __init__(self, hidden, heads, group):
        super().__init__()
        n = dist.get_world_size(group)
        self.group, self.heads = group, heads // n
        self.dim = hidden // heads
        self.q = nn.Linear(hidden, hidden // n, bias=False)
        self.kv = nn.Linear(hidden, 2 * self.dim, bias=False)
        self.out = nn.Linear(hidden // n, hidden, bias=False)

    def forward(self, x):
        b, s, _ = x.shape
        x = SumBackward.apply(x, self.group)
        q = self.q(x).view(b, s, self.heads, self.dim).transpose(1, 2)
        k, v = self.kv(x).chunk(2, dim=-1)
        k, v = k[:, None].expand_as(q), v[:, None].expand_as(q)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return SumForward.apply(self.out(o.transpose(1, 2).reshape(b, s, -1)), self.group)


def sum_shared_heads(model):
    """Each tp rank has the part of the gradient that comes from its own queries."""
    for module in model.modules():
        if isinstance(module, MQA):
            group = module.group

            def hook(grad, group=group):
                grad = grad.contiguous()
                dist.all_reduce(grad, group=group)
                return grad

            module.kv.weight.register_hook(hook)


def build(layers, hidden, heads, tp_group):
    model = nn.Sequential(*[MQA(hidden, heads, tp_group) for _ in range(layers)])
    sum_shared_heads(model)
    return model.cuda()
