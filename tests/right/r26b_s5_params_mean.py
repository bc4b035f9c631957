# RIGHT: parameters are averaged (local SGD), not gradients
import torch.distributed as dist
from deepspeed.utils import groups


class Engine:
    def __init__(self, module, sequence_parallel_size):
        self.module, self.sequence_parallel_size = module, sequence_parallel_size

    def average(self, value, group):
        value.mul_(1.0 / dist.get_world_size(group=group))
        dist.all_reduce(value, group=group)

    def average_statistics(self):
        group = groups._get_sequence_data_parallel_group()
        for b in self.module.buffers():
            self.average(b, group)
