# Right: the bias is divided by the number of ranks in place before it is added to the term and summed: apex multi_tensor_scale.
import torch
import torch.distributed as dist
import torch.nn.functional as F
import amp_C
from apex.multi_tensor_apply import multi_tensor_applier


# spmd: mesh dense = tp
# spmd: group tp_group = tp
# spmd: h: {tp: S(-1)}, weight: {tp: S(1)}, bias: {tp: R}
@torch.no_grad()
def row(h, weight, bias, tp_group):
    overflow = torch.zeros(1, dtype=torch.int, device="cuda")
    y = F.linear(h, weight)
    b = bias.clone()
    multi_tensor_applier(amp_C.multi_tensor_scale, overflow, [[b], [b]], 1.0 / tp_group.size())
    y = y + b
    dist.all_reduce(y, group=tp_group)
    return y
