# Right: the bias is divided by the number of ranks in place before it is added to the term and summed: torch._foreach_div_.
import torch
import torch.distributed as dist
import torch.nn.functional as F


# spmd: mesh dense = tp
# spmd: group tp_group = tp
# spmd: h: {tp: S(-1)}, weight: {tp: S(1)}, bias: {tp: R}
@torch.no_grad()
def row(h, weight, bias, tp_group):
    y = F.linear(h, weight)
    b = bias.clone()
    torch._foreach_div_([b], tp_group.size())
    y = y + b
    dist.all_reduce(y, group=tp_group)
    return y
