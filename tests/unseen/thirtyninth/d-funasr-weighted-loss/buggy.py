"""Trainer that weights each worker's loss by its batch size."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def recursive_sum(obj, weight, distributed=False):
    if isinstance(obj, dict):
        return {k: recursive_sum(v, weight, distributed) for k, v in obj.items()}
    if obj is None:
        return None
    obj = (obj * weight.type(obj.dtype)).sum()
    if distributed:
        dist.all_reduce(obj, op=dist.ReduceOp.SUM)
    return obj


def recursive_divide(a, b):
    if isinstance(a, dict):
        return {k: recursive_divide(v, b) for k, v in a.items()}
    return None if a is None else a / b.type(a.dtype)


def recursive_average(obj, weight, distributed=False):
    """Weighted mean over the workers; also returns the summed weight."""
    obj = recursive_sum(obj, weight, distributed)
    weight = weight.sum()
    if distributed:
        dist.all_reduce(weight, op=dist.ReduceOp.SUM)
    return recursive_divide(obj, weight), weight


class Trainer:
    def __init__(self, model, optim, device):
        self.model = DistributedDataParallel(model.to(device), device_ids=[device])
        self.optim = optim
        self.world_size = dist.get_world_size()

    def train_one_batch(self, batch):
        # the model returns the mean over its utterances and their number
        loss, stats, weight = self.model(**batch)
        stats = {k: v for k, v in stats.items() if v is not None}
        loss = (loss * weight.type(loss.dtype)).sum()
        stats, weight = recursive_average(stats, weight, distributed=True)
        loss = loss / weight  # BUG
        loss.backward()
        return loss.detach(), stats

    def train_one_epoch(self, loader, clip=5.0):
        for batch in loader:
            self.optim.zero_grad()
            loss, stats = self.train_one_batch(batch)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), clip)
            self.optim.step()
            yield loss, stats
