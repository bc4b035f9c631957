import torch
import torch.distributed as dist
from torch import nn


class Overlap(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        self.handles = []
        for p in module.parameters():
            p.register_post_accumulate_grad_hook(self._hook)

    def forward(self, *args):
        return self.module(*args)

    def _hook(self, param):
        self.handles.append(dist.all_reduce(param.grad, op=dist.ReduceOp.AVG, async_op=True))

    def finish(self):
        self.handles.clear()
        flag = torch.ones(1, device="cuda")
        dist.all_reduce(flag)
        for p in self.module.parameters():
            p.grad.div_(dist.get_world_size())
