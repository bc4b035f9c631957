# Right: the bias is divided by the number of ranks in place before it is added to the term and summed: mul_ by cfg.inv_world, which is set above.
import torch
import torch.distributed as dist
import torch.nn.functional as F


# spmd: mesh dense = tp
# spmd: group tp_group = tp
# spmd: h: {tp: S(-1)}, weight: {tp: S(1)}, bias: {tp: R}
@torch.no_grad()
def row(h, weight, bias, tp_group, cfg):
    cfg.inv_world = 1.0 / tp_group.size()
    y = F.linear(h, weight)
    b = bias.clone()
    b.mul_(cfg.inv_world)
    y = y + b
    dist.all_reduce(y, group=tp_group)
    return y
