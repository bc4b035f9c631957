"""Shared outer LoRA factor of grouped experts, replicated over the tensor+data ranks.

Source: https://github.com/radixark/miles/pull/2723
Wrong: with fused weight gradients backward adds the real gradient to param.main_grad and returns a
dummy; the hook on the parameter reduces the dummy, and the optimizer reads unreduced main_grad.
Repair: with fusion, reduce main_grad once after backward; keep the hook for the unfused path.
"""
import torch
import torch.distributed as dist
import torch.nn as nn


class FusedWgradLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        weight.main_grad.add_(grad.flatten(0, -2).t() @ x.flatten(0, -2))
        return grad @ weight, torch.empty_like(weight)  # the second one is never read


class SharedOuterGroupedExpertAdapter(nn.Module):
    def __init__(self, shared, fuse_wgrad):
        super().__init__()
        self.shared = nn.Parameter(shared)
        self.shared.main_grad = torch.zeros_like(shared, dtype=torch.float32)
        self.fuse_wgrad = fuse_wgrad

    def forward(self, x):
        if self.fuse_wgrad:
            return FusedWgradLinear.apply(x, self.shared)
        return nn.functional.linear(x, self.shared)


def setup_shared_sync(adapters, group):
    def sum_over_replicas(grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=group)
        return grad

    for adapter in adapters:
        if not adapter.fuse_wgrad:
            adapter.shared.register_hook(sum_over_replicas)


def train_step(model, adapters, batches, loss_fn, optimizer, group):
    for batch in batches:
        loss_fn(model(batch)).backward()
    for adapter in adapters:
        if adapter.fuse_wgrad:
            dist.all_reduce(adapter.shared.main_grad, group=group)
        else:
            adapter.shared.main_grad.add_(adapter.shared.grad)
            adapter.shared.grad = None
    optimizer.step_from_main_grads()
