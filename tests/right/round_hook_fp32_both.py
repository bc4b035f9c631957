"""Hook reduces in every backward; the flag only picks the precision of the wire."""
import torch
import torch.distributed as dist
import torch.nn as nn


class DataParallel(nn.Module):
    def __init__(self, module, reduce_in_fp32=False):
        super().__init__()
        self.module = module
        self.reduce_in_fp32 = reduce_in_fp32
        for p in self.module.parameters():
            if p.requires_grad:
                p.register_hook(self._reduce)

    def set_precision(self, fp32):
        self.reduce_in_fp32 = fp32

    def _reduce(self, grad):
        if self.reduce_in_fp32:
            dtype = grad.dtype
            grad = grad.float()
            dist.all_reduce(grad, op=dist.ReduceOp.AVG)
            return grad.to(dtype)
        dist.all_reduce(grad, op=dist.ReduceOp.AVG)
        return grad

    def forward(self, *args):
        return self.module(*args)


def train(net, loader, optimizer):
    model = DataParallel(net, reduce_in_fp32=True)
    for x, y in loader:
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
