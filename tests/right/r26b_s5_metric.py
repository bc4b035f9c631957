# RIGHT: mean of metrics over all
import torch.distributed as dist
from deepspeed.utils import groups


class Meter:
    def __init__(self, sequence_parallel_size):
        self.sequence_parallel_size = sequence_parallel_size

    def mean(self, loss):
        group = groups._get_sequence_data_parallel_group()
        out = loss.detach() / dist.get_world_size(group)
        dist.all_reduce(out, group=group)
        return out
