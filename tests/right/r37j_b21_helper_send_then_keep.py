import torch
import torch.distributed as dist


def send_copy(x, peer):
    """Sends a copy of x for the log of the peer; x is returned."""
    dist.isend(x.detach().contiguous(), peer).wait()
    return x


class Tee(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, peer):
        return send_copy(x, peer).view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad, None
