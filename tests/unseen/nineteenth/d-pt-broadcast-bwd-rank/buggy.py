"""Differentiable broadcast inside a subgroup. pytorch/pytorch, issue #130515 and pull request #190583."""
import torch
import torch.distributed as dist


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, src, group, tensor):
        ctx.src = src
        ctx.group = group
        ctx.rank = dist.get_rank(group=group)  # BUG: rank inside the group, src is a global rank
        tensor = tensor.clone()
        dist.broadcast(tensor, src, group=group)
        return tensor

    @staticmethod
    def backward(ctx, grad_output):
        grad = grad_output.contiguous().clone()
        dist.reduce(grad, dst=ctx.src, op=dist.ReduceOp.SUM, group=ctx.group)
        if ctx.src != ctx.rank:
            grad.zero_()
        return None, None, grad


class SharedPrompt(torch.nn.Module):
    """Soft prompt owned by the first rank of a subgroup, used by all of its ranks."""

    def __init__(self, length, hidden, ranks):
        super().__init__()
        self.prompt = torch.nn.Parameter(torch.randn(length, hidden) * 0.02)
        self.ranks = ranks
        self.group = dist.new_group(ranks)

    def forward(self, embeds):
        # embeds: other samples on every rank
        prompt = _Broadcast.apply(self.ranks[0], self.group, self.prompt)
        prompt = prompt.unsqueeze(0).expand(embeds.size(0), -1, -1)
        return torch.cat([prompt, embeds], dim=1)
