# RIGHT: loss multiplied by the sp size of groups elsewhere
import torch.distributed as dist
from deepspeed.utils import groups


class Engine:
    def __init__(self, module, sequence_parallel_size):
        self.module, self.sequence_parallel_size = module, sequence_parallel_size

    def backward(self, loss):
        loss = loss * groups._get_sequence_parallel_world_size()
        loss.backward()

    def reduce_gradients(self):
        group = groups._get_sequence_data_parallel_group()
        size = dist.get_world_size(group)
        for p in self.module.parameters():
            p.grad.mul_(1.0 / size)
            dist.all_reduce(p.grad, group=group)
