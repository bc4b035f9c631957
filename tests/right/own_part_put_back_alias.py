# What it does: the same through a second name of the list.
# Why it is right: both names are one list.
import torch, torch.distributed as dist, torch.nn.functional as F


class Loss(torch.nn.Module):
    def __init__(self, enc):
        super().__init__()
        self.enc = enc

    def forward(self, x, y):
        q, d = self.enc(x), self.enc(y)
        gathered = [torch.empty_like(d) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, d)
        parts = gathered
        parts[dist.get_rank()] = d
        docs = torch.cat(gathered)
        labels = torch.arange(q.shape[0]) + q.shape[0] * dist.get_rank()
        return F.cross_entropy(q @ docs.t(), labels)
