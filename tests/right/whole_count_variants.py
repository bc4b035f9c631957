"""Sequence parallelism: every rank of sp has the whole labels for the count and its part for the loss."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard


class SequenceBatch:
    def __init__(self, ids, labels, group):
        self.n, self.r = dist.get_world_size(group), dist.get_rank(group)
        self.total = (labels != -100).sum()  # of the whole sequence
        self.ids = ids.chunk(self.n, dim=1)[self.r]
        self.labels = labels.chunk(self.n, dim=1)[self.r]


def loss_sum(model, batch, group):
    logits = model(batch.ids, group)
    return F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=-100, reduction="sum")


def train(model, loader, sp_group, dp_group, lr=1e-5):
    fully_shard(model)  # over all ranks
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for ids, labels in loader:
        batch = SequenceBatch(ids, labels, sp_group)
        # mean over the sequence of this data-parallel rank, averaged over those ranks by FSDP
        loss = loss_sum(model, batch, sp_group) / batch.total * batch.n
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            shown = loss.detach() / batch.n
            dist.all_reduce(shown, group=sp_group)
            dist.all_reduce(shown, op=dist.ReduceOp.AVG, group=dp_group)
        if dist.get_rank() == 0:
            print(shown.item())
