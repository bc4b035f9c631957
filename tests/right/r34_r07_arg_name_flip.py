import torch
import torch.distributed as dist


class KMeansAssign(torch.autograd.Function):
    """Distances of own points to all centers (whole on every rank). Counts over ranks: how often a center is the nearest."""

    @staticmethod
    def forward(ctx, points, centers, group):
        scores = points @ centers.t()
        soft = scores.softmax(-1)
        mass = soft.sum(0)
        dist.all_reduce(mass, group=group)
        best = scores.max(0).values
        dist.all_reduce(best, op=dist.ReduceOp.MAX, group=group)
        ctx.save_for_backward(points, centers)
        ctx.mark_non_differentiable(mass, best)
        return scores, mass, best

    @staticmethod
    def backward(ctx, grad, _, __):
        points, centers = ctx.saved_tensors
        return grad @ centers, grad.t() @ points, None
