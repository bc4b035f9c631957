# thread: https://github.com/databricks/megablocks/pull/20
"""Expert-parallel MLP of a mixture-of-experts layer and the gradient reduction around it."""
from dataclasses import dataclass
from typing import Optional

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


@dataclass
class Arguments:
    hidden_size: int = 1024
    ffn_hidden_size: int = 4096
    moe_num_experts: int = 8
    moe_expert_model_parallelism: bool = True
    expert_parallel_group: Optional[dist.ProcessGroup] = None
    init_std: float = 0.02


def get_expert_parallel_world_size(args: Arguments) -> int:
    return dist.get_world_size(args.expert_parallel_group) if args.moe_expert_model_parallelism else 1


class ScaleGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.scale, None


scale_gradient = ScaleGradient.apply


class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, output_splits, input_splits, group):
        ctx.splits, ctx.group = (input_splits, output_splits), group
        out = x.new_empty((sum(output_splits),) + x.shape[1:])
        dist.all_to_all_single(out, x.contiguous(), output_splits, input_splits, group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        output_splits, input_splits = ctx.splits
        out = grad.new_empty((sum(output_splits),) + grad.shape[1:])
        dist.all_to_all_single(out, grad.contiguous(), output_splits, input_splits, group=ctx.group)
        return out, None, None, None


class ParallelMLP(nn.Module):
    def __init__(self, args: Arguments):
        super().__init__()
        self.args = args
        world = get_expert_parallel_world_size(args)
        local = args.moe_num_experts // world
        self.gradient_scale = 1 / world
        self.w1 = nn.Parameter(torch.randn(local, args.hidden_size, args.ffn_hidden_size) * args.init_std)
        self.w2 = nn.Parameter(torch.randn(local, args.ffn_hidden_size, args.hidden_size) * args.init_std)
        for w in (self.w1, self.w2):
            w.expert_model_parallel = args.moe_expert_model_parallelism

    def forward(self, x, tokens_per_expert):
        w1 = scale_gradient(self.w1, self.gradient_scale)
        w2 = scale_gradient(self.w2, self.gradient_scale)
        outs = []
        for i, chunk in enumerate(x.split(tokens_per_expert.tolist())):
            outs.append(F.gelu(chunk @ w1[i]) @ w2[i])
        return torch.cat(outs)


class ParallelMoE(nn.Module):
    def __init__(self, args: Arguments):
        super().__init__()
        self.args = args
        self.router = nn.Linear(args.hidden_size, args.moe_num_experts, bias=False)
        self.mlp = ParallelMLP(args)

    def forward(self, x):
        shape, group = x.shape, self.args.expert_parallel_group
        x = x.flatten(0, -2)
        weight, expert = self.router(x).softmax(dim=-1).max(dim=-1)
        order = expert.argsort(stable=True)
        counts = torch.bincount(expert, minlength=self.args.moe_num_experts)
        world = get_expert_parallel_world_size(self.args)
        recv = torch.empty_like(counts)
        dist.all_to_all_single(recv, counts, group=group)
        send_splits = counts.view(world, -1).sum(1).tolist()
        recv_splits = recv.view(world, -1).sum(1).tolist()
        tokens = AllToAll.apply(x[order], recv_splits, send_splits, group)
        owner = torch.arange(recv.numel(), device=x.device) % (recv.numel() // world)
        local_expert = owner.repeat_interleave(recv)
        inner = local_expert.argsort(stable=True)
        out = self.mlp(tokens[inner], recv.view(world, -1).sum(0))
        out = AllToAll.apply(out[inner.argsort()], send_splits, recv_splits, group)
        return (out[order.argsort()] * weight.unsqueeze(-1)).view(shape)


def reduce_gradients(model, data_parallel_group, expert_data_parallel_group):
    """Losses are means over the local batch: every gradient is averaged over its group."""
    for param in model.parameters():
        if param.grad is None:
            continue
        expert = getattr(param, "expert_model_parallel", False)
        group = expert_data_parallel_group if expert else data_parallel_group
        dist.all_reduce(param.grad, group=group)
        param.grad.div_(dist.get_world_size(group))
