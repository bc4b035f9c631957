import torch
import torch.distributed as dist
from mylib.training import reduce_marked_gradients


class Norm(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(n))
        self.w.sequence_parallel = True


def step(model, dp_group):
    reduce_marked_gradients(model)
    for p in model.parameters():
        dist.all_reduce(p.grad, group=dp_group)
        p.grad.div_(dist.get_world_size(dp_group))
