"""Evaluation under sequence parallelism: sums of parts, count of the whole."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


class Evaluator:
    def __init__(self, model, sp_group, dp_group):
        self.model, self.sp_group, self.dp_group = model, sp_group, dp_group
        self.n, self.r = dist.get_world_size(sp_group), dist.get_rank(sp_group)

    def own(self, x):
        return x.chunk(self.n, dim=1)[self.r]

    @torch.no_grad()
    def batch(self, ids, labels):
        logits = self.model(self.own(ids))
        nll = F.cross_entropy(logits.flatten(0, 1), self.own(labels).flatten(), reduction="sum", ignore_index=-100)
        dist.all_reduce(nll, group=self.sp_group)
        return nll, (labels != -100).sum()

    def mean_loss(self, loader):
        total = torch.zeros(2, device="cuda")
        for ids, labels in loader:
            nll, n = self.batch(ids, labels)
            total += torch.stack([nll, n.float()])
        dist.all_reduce(total, group=self.dp_group)
        return (total[0] / total[1]).item()


def perplexity_of_sequence(model, ids, labels, sp_group):
    n, r = dist.get_world_size(sp_group), dist.get_rank(sp_group)
    with torch.no_grad():
        logits = model(ids.chunk(n, 1)[r])
        own = labels.chunk(n, 1)[r]
        total = F.cross_entropy(logits.flatten(0, 1), own.flatten(), reduction="sum", ignore_index=-100)
        count = (labels != -100).sum()
        dist.all_reduce(total, group=sp_group)
    return (total / count).exp().item()
