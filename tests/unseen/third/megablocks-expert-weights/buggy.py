"""Dropless MoE layer with expert model parallelism over the data-parallel ranks."""
# Source: databricks/megablocks pull request 20 and issue 86 (confirmed from the threads)
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class ScaleGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.scale, None


class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, output_splits, input_splits, group):
        ctx.output_splits, ctx.input_splits, ctx.group = output_splits, input_splits, group
        out = x.new_empty(sum(output_splits), *x.shape[1:])
        dist.all_to_all_single(out, x.contiguous(), output_splits, input_splits, group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty(sum(ctx.input_splits), *grad.shape[1:])
        dist.all_to_all_single(out, grad.contiguous(), ctx.input_splits, ctx.output_splits, group=ctx.group)
        return out, None, None, None


class ExpertMLP(nn.Module):
    """The one expert of this rank."""

    def __init__(self, args):
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(args.ffn_hidden_size, args.hidden_size))
        self.w2 = nn.Parameter(torch.empty(args.ffn_hidden_size, args.hidden_size))
        for w in (self.w1, self.w2):
            w.expert_model_parallel = True
        self.gradient_scale = 1.0 / dist.get_world_size(args.expert_parallel_group)

    def forward(self, x):
        return F.gelu(x @ self.w1.t()) @ self.w2  # BUG


class MoE(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.group = args.expert_parallel_group
        self.router = nn.Linear(args.hidden_size, dist.get_world_size(self.group), bias=False)
        self.mlp = ExpertMLP(args)

    def forward(self, x):
        # x: [tokens, hidden] of this rank
        weight, expert = self.router(x).softmax(dim=-1).max(dim=-1)
        order = expert.argsort()
        send = torch.bincount(expert, minlength=dist.get_world_size(self.group))
        recv = torch.empty_like(send)
        dist.all_to_all_single(recv, send, group=self.group)
        send, recv = send.tolist(), recv.tolist()
        y = AllToAll.apply(self.mlp(AllToAll.apply(x[order], recv, send, self.group)), send, recv, self.group)
        return torch.zeros_like(x).index_add(0, order, y) * weight.unsqueeze(-1)


def sync_gradients(model, data_parallel_group):
    for p in model.parameters():
        if not getattr(p, "expert_model_parallel", False):
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=data_parallel_group)
