"""Differentiable broadcast of features from the first rank of a group.

Source: pytorch/pytorch, issue #130515 (pull request #190583). `src` is a global rank, as
dist.broadcast and dist.reduce want it, but the rank it is compared with in the backward is the
rank inside the group. In groups where the two differ the source throws its gradient away.
"""
import torch
import torch.distributed as dist


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, src, group, tensor):
        ctx.src, ctx.group = src, group
        ctx.rank = dist.get_rank()
        tensor = tensor.clone().contiguous()
        dist.broadcast(tensor, src, group=group)
        return tensor

    @staticmethod
    def backward(ctx, grad_output):
        grad = grad_output.contiguous().clone()
        dist.reduce(grad, ctx.src, op=dist.ReduceOp.SUM, group=ctx.group)
        if ctx.rank != ctx.src:
            grad.zero_()
        return None, None, grad


class ConditionedModel(torch.nn.Module):
    """The prompt encoder runs on the first rank of each group, the decoder on all of them."""

    def __init__(self, prompt_encoder, decoder, width, group):
        super().__init__()
        self.prompt_encoder, self.decoder = prompt_encoder, decoder
        self.width, self.group = width, group

    def forward(self, prompt, x):
        src = dist.get_global_rank(self.group, 0)
        if dist.get_rank() == src:
            features = self.prompt_encoder(prompt)
        else:
            features = torch.zeros(
                prompt.size(0), prompt.size(1), self.width, device=x.device, requires_grad=True
            )
        features = _Broadcast.apply(src, self.group, features)
        return self.decoder(x, features)
