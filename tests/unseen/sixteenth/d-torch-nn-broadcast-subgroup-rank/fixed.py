# pytorch/pytorch issue 130515, pull request 190583
"""Differentiable broadcast within a process group."""
import torch
import torch.distributed as dist


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, src, group, tensor):
        ctx.src = src
        ctx.group = group
        ctx.rank = dist.get_rank()
        # torch.distributed makes all the calls in place
        tensor = tensor.clone().contiguous()
        dist.broadcast(tensor, src, group=group)
        return tensor

    @staticmethod
    def backward(ctx, grad_output):
        gx = grad_output.clone().contiguous()
        dist.reduce(gx, ctx.src, op=dist.ReduceOp.SUM, group=ctx.group)
        if ctx.src != ctx.rank:
            gx.zero_()
        return None, None, gx


def broadcast(tensor, src, group):
    """Broadcast ``tensor`` from global rank ``src`` to all ranks of ``group``."""
    return _Broadcast.apply(src, group, tensor)


class ConditionedDecoder(torch.nn.Module):
    """The first rank of every group encodes the prompt, all ranks of the group decode their own samples."""

    def __init__(self, encoder, decoder, hidden, group):
        super().__init__()
        self.encoder, self.decoder, self.hidden, self.group = encoder, decoder, hidden, group
        self.src = dist.get_global_rank(group, 0)

    def forward(self, prompt, x):
        if dist.get_rank() == self.src:
            memory = self.encoder(prompt)
        else:
            memory = torch.zeros(
                prompt.size(0), prompt.size(1), self.hidden, device=x.device, requires_grad=True
            )
        memory = broadcast(memory, self.src, self.group)
        return self.decoder(x, memory)
