"""Mixture of experts with the experts split over the expert-parallel ranks."""
import torch
import torch.distributed as dist
from torch import nn


class _CopyToRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class _ReduceFromRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class OlmoeSparseMoeBlock(nn.Module):
    def __init__(self, config, ep_group):
        super().__init__()
        self.top_k, self.num_experts, self.ep_group = config.num_experts_per_tok, config.num_experts, ep_group
        self.num_local = config.num_experts // ep_group.size()
        self.offset = dist.get_rank(ep_group) * self.num_local
        self.gate = nn.Linear(config.hidden_size, config.num_experts, bias=False)
        self.up = nn.Parameter(torch.empty(self.num_local, config.hidden_size, config.intermediate_size))
        self.down = nn.Parameter(torch.empty(self.num_local, config.intermediate_size, config.hidden_size))

    def forward(self, hidden_states):
        # hidden_states: [tokens, hidden], the same on every expert-parallel rank
        probs = self.gate(hidden_states).float().softmax(dim=-1)
        weights, index = probs.topk(self.top_k, dim=-1)
        dense = torch.zeros_like(probs).scatter(1, index, weights)
        local = dense[:, self.offset : self.offset + self.num_local].to(hidden_states.dtype)  # BUG
        x = _CopyToRegion.apply(hidden_states, self.ep_group)
        h = nn.functional.silu(torch.einsum("td,edf->etf", x, self.up))
        y = torch.einsum("etf,efd->etd", h, self.down)
        out = torch.einsum("etd,te->td", y, local)
        return _ReduceFromRegion.apply(out, self.ep_group)
