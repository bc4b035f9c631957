import torch
import torch.distributed as dist


@torch.no_grad()
def report(x, group, writer, step):
    n = dist.get_world_size(group)
    moments = torch.stack([x.mean(), x.var(unbiased=False)])
    dist.all_reduce(moments, group=group)
    mean, var = moments / n
    writer.add_scalar("mean", mean, step)
    writer.add_scalar("within_std", var.sqrt(), step)
