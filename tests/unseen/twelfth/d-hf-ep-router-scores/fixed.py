"""Expert-parallel MoE block: every rank sees all tokens and runs its own experts."""
import torch
import torch.distributed as dist
import torch.nn as nn


class _CopyToGroup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        grad_output = grad_output.contiguous().clone()
        dist.all_reduce(grad_output, group=ctx.group)
        return grad_output, None


class _ReduceFromGroup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


class SparseMoeBlock(nn.Module):
    def __init__(self, hidden_size, num_experts, top_k, local_experts, ep_group):
        super().__init__()
        self.gate = nn.Linear(hidden_size, num_experts, bias=False)  # same on every rank
        self.experts = nn.ModuleList(local_experts)
        self.top_k, self.ep_group = top_k, ep_group
        self.first_expert = dist.get_rank(ep_group) * len(local_experts)

    def forward(self, x):
        # x: [tokens, hidden], the same on all ranks of ep_group
        weights, ids = torch.topk(self.gate(x).softmax(dim=-1), self.top_k, dim=-1)
        x, scores = _CopyToGroup.apply(x, self.ep_group), _CopyToGroup.apply(weights, self.ep_group)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            tok, slot = torch.where(ids == self.first_expert + i)
            out = out.index_add(0, tok, expert(x[tok]) * scores[tok, slot].unsqueeze(-1))
        return _ReduceFromGroup.apply(out, self.ep_group)
