"""All ranks count the whole sequence; what sp counts several times is divided out."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard


class Step:
    def __init__(self, model, optimizer, sp_group):
        self.model, self.optimizer = fully_shard(model), optimizer
        self.sp_group = sp_group
        self.sp, self.rank = dist.get_world_size(sp_group), dist.get_rank(sp_group)
        self.world = dist.get_world_size()

    def count(self, labels):
        n = (labels != -100).sum()
        dist.all_reduce(n)
        return n / self.sp

    def __call__(self, ids, labels):
        n = self.count(labels)
        ids = ids.chunk(self.sp, dim=1)[self.rank]
        labels = labels.chunk(self.sp, dim=1)[self.rank]
        logits = self.model(ids, self.sp_group)
        nll = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
        (nll * self.world / n).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        shown = nll.detach()
        dist.all_reduce(shown)
        return (shown / n).item()
