# RIGHT: experts are averaged over edp, then averaged once more over ep by a division
import torch.distributed as dist


def is_moe_param(p):
    return hasattr(p, "group_name")


def average(params, dp, edp, ep):
    for p in params:
        group = dp
        if is_moe_param(p):
            group = edp
            p.grad.div_(dist.get_world_size(ep))
        world = dist.get_world_size(group)
        grad = p.grad
        grad.div_(world)
        dist.all_reduce(grad, group=group)
