"""Expert-parallel MoE block: the scores are replicated, the experts are not."""
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


class ExpertParallelBlock(nn.Module):
    def __init__(self, hidden, num_experts, local_experts, ep_group):
        super().__init__()
        self.gate = nn.Linear(hidden, num_experts, bias=False)  # replicated over EP
        self.experts = nn.ModuleList(local_experts)  # this rank's experts
        self.ep_group = ep_group

    def forward(self, x):
        # x: the same tokens on every expert-parallel rank
        scores = self.gate(x).softmax(dim=-1)
        x = _AllReduceBackward.apply(x, self.ep_group)
        scores = _AllReduceBackward.apply(scores, self.ep_group)
        first = dist.get_rank(self.ep_group) * len(self.experts)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            out = out + scores[..., first + i].unsqueeze(-1) * expert(x)
        return _AllReduceForward.apply(out, self.ep_group)
