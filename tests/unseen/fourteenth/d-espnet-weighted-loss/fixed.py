# Reduces the espnet2 trainer: the per-rank loss is weighted by its batch size and divided by the batch size of
# all ranks; DistributedDataParallel divides by the number of ranks once more.
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def weighted_sum_and_total(loss, weight):
    """The loss times the local weight, and the weight summed over the ranks."""
    total = weight.clone()
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    return loss * weight, total


class Trainer:
    def __init__(self, model, optimizer, options):
        self.model = DistributedDataParallel(model, device_ids=[options.local_rank])
        self.optimizer = optimizer
        self.options = options

    def train_one_epoch(self, iterator):
        for utt_id, batch in iterator:
            # `loss` is the mean over the utterances of this rank, `weight` is their number
            loss, stats, weight = self.model(**batch)
            weighted, total = weighted_sum_and_total(loss, weight.to(loss.dtype))
            loss = weighted / total
            loss = loss * dist.get_world_size()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.options.grad_clip)
            self.optimizer.step()
            self.optimizer.zero_grad()
