# Right: the pending sum is completed over tp before gelu; nothing needs a gradient; summed in place by a method of a dataclass that holds the tensor.
from dataclasses import dataclass
import torch
import torch.distributed as dist
import torch.nn.functional as F


@dataclass
class Job:
    tensor: torch.Tensor
    group: dist.ProcessGroup

    def run(self):
        dist.all_reduce(self.tensor, group=self.group)


# spmd: mesh dense = tp
# spmd: group tp_group = tp
# spmd: h: {tp: S(-1)}, weight: {tp: S(1)}
@torch.no_grad()
def activate(h, weight, tp_group):
    y = F.linear(h, weight)
    Job(y, tp_group).run()
    return F.gelu(y)
