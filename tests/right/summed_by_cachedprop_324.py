# Right: the shown loss is summed over dp and cp and divided by both; summed in place by a cached_property that returns partial(dist.all_reduce, group=...).
from functools import cached_property, partial
import torch
import torch.distributed as dist
import torch.nn.functional as F


class Comm:
    def __init__(self, group):
        self.group = group

    @cached_property
    def all_reduce(self):
        return partial(dist.all_reduce, group=self.group)


@torch.no_grad()
def evaluate(model, batch, labels, dp_group, cp_group):
    comm = Comm(cp_group)
    loss = F.cross_entropy(model(batch), labels).detach()
    dist.all_reduce(loss, group=dp_group)
    comm.all_reduce(loss)
    loss = loss / dist.get_world_size(cp_group) / dist.get_world_size(dp_group)
    return loss.item()
