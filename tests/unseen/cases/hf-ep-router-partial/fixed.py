"""Expert-parallel MoE block: each rank runs its own experts on all tokens."""
import torch
import torch.distributed as dist
from torch import nn


class _AllReduceBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class _AllReduceForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class MoeBlock(nn.Module):
    def __init__(self, gate, local_experts, ep_group):
        super().__init__()
        self.gate, self.experts, self.ep_group = gate, local_experts, ep_group

    def forward(self, hidden_states):
        # hidden_states is the same on every expert-parallel rank
        scores = torch.softmax(self.gate(hidden_states), dim=-1)
        rank, n = dist.get_rank(self.ep_group), len(self.experts)
        scores = _AllReduceBackward.apply(scores, self.ep_group)[..., rank * n:(rank + 1) * n]
        hidden_states = _AllReduceBackward.apply(hidden_states, self.ep_group)
        out = sum(e(hidden_states) * scores[..., i:i + 1] for i, e in enumerate(self.experts))
        return _AllReduceForward.apply(out, self.ep_group)
