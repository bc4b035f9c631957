"""Mixture-of-experts layer whose experts are spread over the ranks of a group."""
# thread: huggingface/transformers#48205
import torch
import torch.distributed as dist
from torch import nn


class CopyToExperts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class CombineExperts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        out = x.clone()
        dist.all_reduce(out, group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class SparseMoeBlock(nn.Module):
    def __init__(self, router, local_experts, first_expert, top_k, ep_group):
        super().__init__()
        self.router, self.experts = router, nn.ModuleList(local_experts)
        self.first, self.top_k, self.ep_group = first_expert, top_k, ep_group

    def forward(self, hidden):
        # hidden: [tokens, dim], the same on every rank of ep_group
        scores, index = torch.softmax(self.router(hidden), dim=-1).topk(self.top_k, dim=-1)
        scores = CopyToExperts.apply(scores, self.ep_group)
        x = CopyToExperts.apply(hidden, self.ep_group)
        out = torch.zeros_like(hidden)
        for i, expert in enumerate(self.experts):
            token, slot = torch.where(index == self.first + i)
            out = out.index_add(0, token, expert(x[token]) * scores[token, slot, None])
        return CombineExperts.apply(out, self.ep_group)
