# What it does: contrastive loss: gathered rows, the own ones put back with their gradient by a helper.
# Why it is right: the helper writes the own rows, which have a history, into the list.
import torch, torch.distributed as dist, torch.nn.functional as F


def keep_own(parts, own):
    parts[dist.get_rank()] = own


class Loss(torch.nn.Module):
    def __init__(self, enc):
        super().__init__()
        self.enc = enc

    def forward(self, x, y):
        q, d = self.enc(x), self.enc(y)
        parts = [torch.empty_like(d) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, d)
        keep_own(parts, d)
        docs = torch.cat(parts)
        labels = torch.arange(q.shape[0]) + q.shape[0] * dist.get_rank()
        return F.cross_entropy(q @ docs.t(), labels)
