# RIGHT: multiplied back by the size that groups gives
import torch.distributed as dist
from deepspeed.utils import groups


class Engine:
    def __init__(self, module, sequence_parallel_size):
        self.module, self.sequence_parallel_size = module, sequence_parallel_size

    def average(self, grad, group):
        grad.mul_(1.0 / dist.get_world_size(group))
        dist.all_reduce(grad, group=group)
        grad.mul_(groups._get_sequence_parallel_world_size())

    def reduce_gradients(self):
        group = groups._get_sequence_data_parallel_group()
        for p in self.module.parameters():
            self.average(p.grad, group)
