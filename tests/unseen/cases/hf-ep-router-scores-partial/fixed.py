"""Expert parallelism: each rank holds num_experts / ep_size experts, tokens are replicated."""
# huggingface/transformers PR 48205: router scores of non-local experts are zeroed; the partial score gradients are never summed.
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class _AllReduceForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


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


def all_reduce_forward(x, group):
    return _AllReduceForward.apply(x, group)


def all_reduce_backward(x, group):
    return _AllReduceBackward.apply(x, group)


class MoeExperts(nn.Module):
    def __init__(self, gate_up_shard, down_shard):
        super().__init__()
        # [num_experts / ep, ...]: a different slice of the experts on each rank
        self.gate_up_proj = nn.Parameter(gate_up_shard)
        self.down_proj = nn.Parameter(down_shard)

    def forward(self, hidden_states, scores):
        out = torch.zeros_like(hidden_states)
        for i in range(self.gate_up_proj.shape[0]):
            gate, up = (hidden_states @ self.gate_up_proj[i]).chunk(2, dim=-1)
            out = out + scores[:, i, None] * ((F.silu(gate) * up) @ self.down_proj[i])
        return out


class SparseMoeBlock(nn.Module):
    def __init__(self, hidden_size, num_experts, top_k, gate_up, down, ep_group):
        super().__init__()
        self.gate = nn.Linear(hidden_size, num_experts, bias=False)
        self.ep_group = ep_group
        self.top_k = top_k
        rank, size = dist.get_rank(ep_group), dist.get_world_size(ep_group)
        self.num_local = num_experts // size
        self.start = rank * self.num_local
        self.experts = MoeExperts(
            gate_up[self.start : self.start + self.num_local], down[self.start : self.start + self.num_local]
        )

    def forward(self, hidden_states):
        # hidden_states: the same tokens on all ranks of the expert-parallel group
        logits = self.gate(hidden_states)
        weights, index = torch.topk(logits.softmax(dim=-1), self.top_k, dim=-1)
        scores = torch.zeros_like(logits).scatter(1, index, weights)
        scores = all_reduce_backward(scores, self.ep_group)
        scores = scores[:, self.start : self.start + self.num_local]
        expert_in = all_reduce_backward(hidden_states, self.ep_group)
        out = self.experts(expert_in, scores)
        return all_reduce_forward(out, self.ep_group)
