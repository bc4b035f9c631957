import torch
import torch.distributed as dist


class Bucket:
    def __init__(self, n):
        self.buf = torch.zeros(n, device="cuda")
        self.at = 0

    def add(self, g):
        view = self.buf[self.at : self.at + g.numel()]
        view.copy_(g.flatten())
        self.at += g.numel()
        return view


def reduce_grads(params, bucket, group):
    for p in params:
        dist.all_reduce(bucket.add(p.grad), group=group)
    for p, v in zip(params, bucket.buf.split([p.numel() for p in params])):
        p.grad.copy_(v.view_as(p))
