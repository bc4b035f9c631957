# RIGHT: divided by the token count of all ranks after a SUM
import torch.distributed as dist
from deepspeed.utils import groups


class Engine:
    def __init__(self, module, sequence_parallel_size):
        self.module, self.sequence_parallel_size = module, sequence_parallel_size

    def reduce_gradients(self, tokens):
        group = groups._get_sequence_data_parallel_group()
        dist.all_reduce(tokens, group=group)
        for p in self.module.parameters():
            dist.all_reduce(p.grad, group=group)
            p.grad.div_(tokens)
