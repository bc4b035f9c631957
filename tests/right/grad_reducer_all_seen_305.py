import torch
import torch.distributed as dist
from megatron.core import parallel_state


class Norm(torch.nn.Module):
    def __init__(self, config, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))
        self.bias = torch.nn.Parameter(torch.zeros(size))
        self.sequence_parallel = config.sequence_parallel
        self.weight.sequence_parallel = config.sequence_parallel


def reduce_norms(model):
    group = parallel_state.get_tensor_model_parallel_group()
    for module in model.modules():
        if isinstance(module, Norm) and module.sequence_parallel:
            for p in module.parameters():
                dist.all_reduce(p.grad, group=group)
