"""Expert weights whose gradient already sums over the ranks that send tokens (megablocks style)."""
import torch
import torch.distributed as dist
import torch.nn as nn


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
    def forward(ctx, x, out_splits, in_splits, group):
        ctx.out_splits, ctx.in_splits, ctx.group = out_splits, in_splits, group
        out = x.new_empty((sum(out_splits),) + x.shape[1:])
        dist.all_to_all_single(out, x.contiguous(), out_splits, in_splits, group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty((sum(ctx.in_splits),) + grad.shape[1:])
        dist.all_to_all_single(out, grad.contiguous(), ctx.in_splits, ctx.out_splits, group=ctx.group)
        return out, None, None, None


class ParallelMLP(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.args = args
        self.ep_group = args.expert_parallel_group
        self.ep_size = dist.get_world_size(self.ep_group)
        n = args.num_experts // self.ep_size
        self.w1 = nn.Parameter(torch.empty(n, args.hidden, args.ffn))
        self.w2 = nn.Parameter(torch.empty(n, args.ffn, args.hidden))
        for w in (self.w1, self.w2):
            w.expert_model_parallel = True
        self.gradient_scale = 1 / self.ep_size

    def scale_grad(self, w):
        return scale_gradient(w, self.gradient_scale) if self.gradient_scale is not None else w

    def forward(self, x, out_splits, in_splits, counts):
        x = AllToAll.apply(x, out_splits, in_splits, self.ep_group)
        w1, w2 = self.scale_grad(self.w1), self.w2  # BUG
        parts = [torch.relu(t @ a) @ b for t, a, b in zip(x.split(counts), w1, w2)]
        return AllToAll.apply(torch.cat(parts), in_splits, out_splits, self.ep_group)
