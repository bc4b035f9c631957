# RIGHT: each rank's loss is its share of the sequence's loss: summed over sp, averaged over dp only
import torch.distributed as dist
from deepspeed.utils import groups


class Engine:
    def __init__(self, module, sequence_parallel_size):
        self.module, self.sequence_parallel_size = module, sequence_parallel_size

    def average(self, grad, group, size=None):
        size = dist.get_world_size(group=group) if size is None else size
        grad.mul_(1.0 / size)
        dist.all_reduce(grad, group=group)

    def reduce_gradients(self):
        group = groups._get_sequence_data_parallel_group()
        size = groups._get_data_parallel_world_size()
        for p in self.module.parameters():
            self.average(p.grad, group, size)


