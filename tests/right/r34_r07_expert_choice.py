import torch
import torch.distributed as dist


class BalancedAssign(torch.autograd.Function):
    """Sinkhorn over all ranks: own tokens against whole expert vectors; column sums and maxima are those of all tokens."""

    @staticmethod
    def forward(ctx, tokens, experts, group):
        scores = torch.matmul(tokens, experts.t())
        cost = scores.exp()
        columns = cost.sum(0)
        dist.all_reduce(columns, group=group)
        top = scores.amax(0)
        dist.all_reduce(top, op=dist.ReduceOp.MAX, group=group)
        ctx.save_for_backward(tokens, experts)
        ctx.mark_non_differentiable(columns, top)
        return scores, columns, top

    @staticmethod
    def backward(ctx, grad, _c, _t):
        tokens, experts = ctx.saved_tensors
        return torch.matmul(grad, experts), torch.matmul(grad.t(), tokens), None
