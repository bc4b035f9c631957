# What it does: the same by a method.
# Why it is right: as above.
import torch, torch.distributed as dist, torch.nn.functional as F


class Loss(torch.nn.Module):
    def __init__(self, enc):
        super().__init__()
        self.enc = enc

    def keep_own(self, parts, own):
        parts[dist.get_rank()] = own

    def forward(self, x, y):
        q, d = self.enc(x), self.enc(y)
        parts = [torch.empty_like(d) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, d)
        self.keep_own(parts, d)
        docs = torch.cat(parts)
        labels = torch.arange(q.shape[0]) + q.shape[0] * dist.get_rank()
        return F.cross_entropy(q @ docs.t(), labels)
