"""Expert parallelism over replicated activations: each rank runs its own experts, the outputs are summed."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class _AllReduceBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        grad_output = grad_output.contiguous().clone()
        dist.all_reduce(grad_output, group=ctx.group)
        return grad_output, None


class _AllReduceForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


class SparseMoeBlock(nn.Module):
    def __init__(self, dim, inter, num_experts, top_k, ep_group):
        super().__init__()
        self.top_k, self.ep_group = top_k, ep_group
        self.num_local = num_experts // dist.get_world_size(ep_group)
        self.first = self.num_local * dist.get_rank(ep_group)
        self.gate = nn.Linear(dim, num_experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, inter), nn.SiLU(), nn.Linear(inter, dim)) for _ in range(self.num_local)
        )

    def forward(self, hidden_states):
        # hidden_states: [tokens, dim], the same on every rank of ep_group
        probs = F.softmax(self.gate(hidden_states), dim=-1)
        scores, indices = torch.topk(probs, self.top_k, dim=-1)
        not_local = (indices < self.first) | (indices >= self.first + self.num_local)
        scores = scores.masked_fill(not_local, 0.0)  # BUG

        expert_input = _AllReduceBackward.apply(hidden_states, self.ep_group)
        out = torch.zeros_like(expert_input)
        for e, expert in enumerate(self.experts):
            token, slot = torch.where(indices == self.first + e)
            out = out.index_add(0, token, expert(expert_input[token]) * scores[token, slot, None])
        return _AllReduceForward.apply(out, self.ep_group)
