# RIGHT: each rank takes the mean over its own tokens, average of all ranks
import torch.distributed as dist
import torch.nn.functional as F
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
        for p in self.module.parameters():
            self.average(p.grad, group)

    def train_step(self, tokens, labels):
        # every rank has an equal part of the sequence, the loss is the mean over it
        loss = F.cross_entropy(self.module(tokens).flatten(0, 1), labels.flatten())
        loss.backward()
        self.reduce_gradients()
