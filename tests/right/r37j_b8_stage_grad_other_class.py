import torch
import torch.distributed as dist


class _BackwardSend(torch.autograd.Function):
    """Identity forward; sends the gradient to the stage before."""

    @staticmethod
    def forward(ctx, x, peer):
        ctx.peer = peer
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        dist.isend(grad.contiguous(), ctx.peer).wait()
        return grad, None


class _ForwardRecv(torch.autograd.Function):
    """Received activations forward; the gradient is passed on to _BackwardSend."""

    @staticmethod
    def forward(ctx, x, peer):
        buf = torch.empty_like(x)
        dist.irecv(buf, peer).wait()
        return buf

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def recv_activation(template, peer):
    anchor = template.detach().requires_grad_()
    anchor = _BackwardSend.apply(anchor, peer)
    return _ForwardRecv.apply(anchor, peer)


def stage(body, template, peer, loss_fn, target):
    h = recv_activation(template, peer)
    loss = loss_fn(body(h), target)
    loss.backward()
    return loss.detach()
