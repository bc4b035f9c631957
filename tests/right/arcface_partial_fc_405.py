"""Partial FC / ArcFace: class centres sharded over all ranks, features gathered."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class AllGatherFn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        n = dist.get_world_size()
        ctx.b = x.size(0)
        out = x.new_empty((n * x.size(0),) + tuple(x.shape[1:]))
        dist.all_gather_into_tensor(out, x.contiguous())
        return out

    @staticmethod
    def backward(ctx, g):
        n = dist.get_world_size()
        out = g.new_empty((ctx.b,) + tuple(g.shape[1:]))
        dist.reduce_scatter_tensor(out, g.contiguous())
        # DDP averages over ranks but the loss is already the global mean
        return out * n


class DistCE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, label):
        b = logits.size(0)
        m = logits.amax(1, keepdim=True)
        dist.all_reduce(m, dist.ReduceOp.MAX)
        e = (logits - m).exp()
        z = e.sum(1, keepdim=True)
        dist.all_reduce(z)
        p = e / z
        idx = torch.where(label != -1)[0]
        picked = torch.zeros(b, 1, device=logits.device)
        picked[idx] = p[idx].gather(1, label[idx, None])
        dist.all_reduce(picked)
        ctx.save_for_backward(p, label, idx)
        return -picked.clamp(min=1e-30).log().mean()

    @staticmethod
    def backward(ctx, g):
        p, label, idx = ctx.saved_tensors
        d = p.clone()
        d[idx, label[idx]] -= 1
        return d / p.size(0) * g, None


class PartialFC(nn.Module):
    def __init__(self, dim, classes, s=64.0, m=0.5):
        super().__init__()
        n, r = dist.get_world_size(), dist.get_rank()
        self.per = classes // n + int(r < classes % n)
        self.start = classes // n * r + min(r, classes % n)
        self.weight = nn.Parameter(torch.randn(self.per, dim) * 0.01)
        self.s, self.m = s, m

    def forward(self, feat, label):
        x = AllGatherFn.apply(feat)
        labels = torch.empty(label.numel() * dist.get_world_size(), dtype=label.dtype, device=label.device)
        dist.all_gather_into_tensor(labels, label)
        own = (labels >= self.start) & (labels < self.start + self.per)
        labels = torch.where(own, labels - self.start, -1)
        cos = F.linear(F.normalize(x), F.normalize(self.weight)).clamp(-1 + 1e-7, 1 - 1e-7)
        idx = torch.where(labels != -1)[0]
        margin = torch.zeros_like(cos)
        margin[idx, labels[idx]] = self.m
        return DistCE.apply((cos.acos() + margin).cos() * self.s, labels)


def train(backbone, head, loader):
    ddp = nn.parallel.DistributedDataParallel(backbone)
    opt = torch.optim.SGD([{"params": ddp.parameters()}, {"params": head.parameters()}], 0.1)
    for x, y in loader:
        loss = head(ddp(x), y)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(ddp.parameters(), 5)
        opt.step()
