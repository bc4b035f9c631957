# Expert-parallel MoE block in which all ranks of the group see the same tokens.
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class _BackwardAllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class _ForwardAllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class ExpertParallelMoE(nn.Module):
    def __init__(self, hidden, num_experts, top_k, experts, ep_group):
        super().__init__()
        self.gate = nn.Linear(hidden, num_experts, bias=False)
        self.experts = nn.ModuleList(experts)  # num_experts / ep of them
        self.top_k, self.ep_group = top_k, ep_group
        self.offset = ep_group.rank() * len(experts)

    def forward(self, x):
        probs = F.softmax(self.gate(x).float(), dim=-1)
        weights, index = probs.topk(self.top_k, dim=-1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        x = _BackwardAllReduce.apply(x, self.ep_group)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            tok, slot = torch.where(index == self.offset + i)
            out = out.index_add(0, tok, expert(x[tok]) * weights[tok, slot, None])  # BUG
        return _ForwardAllReduce.apply(out, self.ep_group)
