"""SigLIP's sigmoid loss: text features go around a ring, with gradients that go back."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


def exchange(from_rank, to_rank, tensor, group=None):
    received = torch.zeros_like(tensor)
    ops = [
        dist.P2POp(dist.isend, tensor.contiguous(), to_rank, group=group),
        dist.P2POp(dist.irecv, received, from_rank, group=group),
    ]
    for req in dist.batch_isend_irecv(ops):
        req.wait()
    return received


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, from_rank, to_rank, group, tensor):
        ctx.group, ctx.from_rank, ctx.to_rank = group, from_rank, to_rank
        return exchange(from_rank, to_rank, tensor, group=group)

    @staticmethod
    def backward(ctx, grad):
        return None, None, None, exchange(ctx.to_rank, ctx.from_rank, grad, group=ctx.group)


class SigLipLoss(torch.nn.Module):
    def __init__(self, rank, world_size):
        super().__init__()
        self.rank, self.world_size = rank, world_size

    def block(self, image, text, scale, bias, positive):
        logits = scale * image @ text.T + bias
        labels = -torch.ones_like(logits)
        if positive:
            labels = labels + 2 * torch.eye(logits.shape[0], device=logits.device)
        return -F.logsigmoid(labels * logits).sum() / image.shape[0]

    def forward(self, image, text, scale, bias):
        loss = self.block(image, text, scale, bias, True)
        right = (self.rank + 1) % self.world_size
        left = (self.rank - 1) % self.world_size
        moving = text
        for _ in range(self.world_size - 1):
            moving = Exchange.apply(left, right, None, moving)
            loss = loss + self.block(image, moving, scale, bias, False)
        return loss
