# Right: the count is summed over the same ranks as the total; summed by the method of the process group with options (SUM is the default), waited for.
import torch
import torch.distributed as dist


@torch.no_grad()
def evaluate(losses, labels, dp_group):
    mask = labels != -100
    total = (losses * mask).sum()
    count = mask.sum()
    opts = dist.AllreduceOptions()
    dist.all_reduce(total, group=dp_group)
    dp_group.allreduce([count], opts).wait()
    return (total / count).item()
