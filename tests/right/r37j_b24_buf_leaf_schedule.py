import torch
import torch.distributed as dist


class Receive(torch.autograd.Function):
    @staticmethod
    def forward(ctx, leaf, src):
        buf = torch.empty_like(leaf)
        dist.irecv(buf, src).wait()
        return buf

    @staticmethod
    def backward(ctx, grad):
        # lands in leaf.grad; the schedule sends it to the stage before
        return grad, None


class Schedule:
    def __init__(self, stage, prev, shape):
        self.stage, self.prev, self.shape = stage, prev, shape

    def forward(self):
        self.leaf = torch.zeros(self.shape, device="cuda", requires_grad=True)
        return self.stage(Receive.apply(self.leaf, self.prev))

    def backward(self, loss):
        loss.backward()
        dist.isend(self.leaf.grad.contiguous(), self.prev).wait()
