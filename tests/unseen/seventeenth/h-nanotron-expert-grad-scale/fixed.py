# Source: huggingface/nanotron commit 2dd40d35, examples/moe/moe.py (class ExpertParallel)
# An expert weight receives the tokens of all ranks of the expert-parallel group, and its
# gradient is then averaged over dp_pg only (which excludes the expert axis). Other weights are
# averaged over dp x expert. The expert gradients are expert_parallel_size times too large.
# Repair: scale the gradient of the expert weights by 1/expert_parallel_size (the call had been
# commented out).
import torch
from nanotron import distributed as dist
from nanotron.parallel import ParallelContext
from torch import nn


class ScaleGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.scale, None


scale_gradient = ScaleGradient.apply


class ExpertParallel(nn.Module):
    """Weight of the local experts; tokens of all expert-parallel ranks arrive by all-to-all."""

    def __init__(self, module: nn.Linear, expert_parallel_size: int):
        super().__init__()
        self.module = module
        self.expert_parallel_size = expert_parallel_size
        self.module.weight.is_expert = True

    def forward(self, x):
        weight = scale_gradient(self.module.weight, 1 / self.expert_parallel_size)
        return nn.functional.linear(x, weight)


class SparseMLP(nn.Module):
    def __init__(self, hidden_size, intermediate_size, experts_per_rank, expert_parallel_size):
        super().__init__()
        width = experts_per_rank * intermediate_size
        self.w1 = ExpertParallel(nn.Linear(hidden_size, width, bias=False), expert_parallel_size)
        self.w2 = ExpertParallel(nn.Linear(width, hidden_size, bias=False), expert_parallel_size)

    def forward(self, dispatched):
        return self.w2(nn.functional.silu(self.w1(dispatched)))


def sync_gradients_across_dp(module: nn.Module, parallel_context: ParallelContext, dp_expert_pg):
    # the loss is a mean over the local micro batch
    for _, param in module.named_parameters():
        if getattr(param, "is_expert", False):
            dist.all_reduce(param.grad, op=dist.ReduceOp.AVG, group=parallel_context.dp_pg)
        else:
            dist.all_reduce(param.grad, op=dist.ReduceOp.AVG, group=dp_expert_pg)
