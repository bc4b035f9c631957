"""Routed-expert LoRA whose outer factor is shared by all ranks."""
# Source: radixark/miles pull request 2723 (confirmed from the thread)
import torch
import torch.distributed as dist
import torch.nn as nn


class FusedWgradLinear(torch.autograd.Function):
    """Linear that accumulates the weight gradient in fp32."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        grad_x = grad_output @ weight
        weight.main_grad.add_(grad_output.float().t() @ x.float())
        weight.grad_added_to_main_grad = True
        return grad_x, torch.empty_like(weight)


class SharedOuterAdapter(nn.Module):
    def __init__(self, hidden, rank, num_local_experts, replica_group):
        super().__init__()
        self.outer = nn.Parameter(torch.empty(rank, hidden))  # same on all ranks of replica_group
        self.inner = nn.Parameter(torch.zeros(num_local_experts, hidden, rank))
        self.outer.main_grad = torch.zeros_like(self.outer, dtype=torch.float32)
        self.inner.main_grad = torch.zeros_like(self.inner, dtype=torch.float32)
        self.inner.register_post_accumulate_grad_hook(self._move_to_main_grad)
        self.replica_group = replica_group
        self.outer.register_hook(self._sum_over_replicas)  # BUG

    @staticmethod
    def _move_to_main_grad(param):
        param.main_grad.add_(param.grad)
        param.grad = None

    def _sum_over_replicas(self, grad):
        dist.all_reduce(grad, group=self.replica_group)
        return grad

    def forward(self, tokens, expert_index):
        # tokens: rows routed to this rank's experts
        mid = FusedWgradLinear.apply(tokens, self.outer)
        return torch.bmm(self.inner[expert_index], mid.unsqueeze(-1)).squeeze(-1)


class MainGradSGD:
    def __init__(self, adapters, lr):
        self.adapters, self.lr = adapters, lr

    @torch.no_grad()
    def step(self):
        for adapter in self.adapters:
            for param in (adapter.outer, adapter.inner):
                param.sub_(self.lr * param.main_grad.to(param.dtype))
                param.main_grad.zero_()
                param.grad = None
