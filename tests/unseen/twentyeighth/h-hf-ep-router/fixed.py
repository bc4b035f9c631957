"""Sparse MoE layer whose experts are spread over an expert-parallel group.

All ranks of the group see the same tokens; each runs the experts it owns and the
outputs are added up.
"""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class _AllReduceBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class _AllReduceForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Router(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.top_k = config.num_experts_per_tok
        self.norm_topk_prob = config.norm_topk_prob
        self.weight = nn.Parameter(torch.empty(config.num_experts, config.hidden_size))
        nn.init.normal_(self.weight, std=config.initializer_range)

    def forward(self, hidden_states):
        probs = F.linear(hidden_states, self.weight).float().softmax(dim=-1)
        scores, indices = probs.topk(self.top_k, dim=-1)
        if self.norm_topk_prob:
            scores = scores / scores.sum(dim=-1, keepdim=True)
        return scores.to(hidden_states.dtype), indices


class LocalExperts(nn.Module):
    def __init__(self, config, group):
        super().__init__()
        self.num_local = config.num_experts // dist.get_world_size(group)
        self.first = dist.get_rank(group) * self.num_local
        inner = config.moe_intermediate_size
        self.gate_up = nn.Parameter(torch.empty(self.num_local, 2 * inner, config.hidden_size))
        self.down = nn.Parameter(torch.empty(self.num_local, config.hidden_size, inner))
        nn.init.normal_(self.gate_up, std=config.initializer_range)
        nn.init.normal_(self.down, std=config.initializer_range)

    def forward(self, hidden_states, indices, scores):
        out = torch.zeros_like(hidden_states)
        for e in range(self.num_local):
            token, slot = torch.where(indices == self.first + e)
            if token.numel() == 0:
                continue
            gate, up = F.linear(hidden_states[token], self.gate_up[e]).chunk(2, dim=-1)
            y = F.linear(F.silu(gate) * up, self.down[e])
            out = out.index_add(0, token, y * scores[token, slot].unsqueeze(-1))
        return out


class ExpertParallelMoE(nn.Module):
    def __init__(self, config, group):
        super().__init__()
        self.group = group
        self.router = Router(config)
        self.experts = LocalExperts(config, group)

    def forward(self, hidden_states):
        batch, length, dim = hidden_states.shape
        tokens = hidden_states.reshape(-1, dim)
        scores, indices = self.router(tokens)
        tokens = _AllReduceBackward.apply(tokens, self.group)
        scores = _AllReduceBackward.apply(scores, self.group)
        out = self.experts(tokens, indices, scores)
        out = _AllReduceForward.apply(out, self.group)
        return out.view(batch, length, dim)
