# RIGHT: expert gradients are multiplied later by edp/dp in a second pass
import torch.distributed as dist


def is_moe_param(p):
    return hasattr(p, "group_name")


def average(params, dp, edp):
    for p in params:
        group = dp
        if is_moe_param(p):
            group = edp
        world = dist.get_world_size(group)
        grad = p.grad
        grad.div_(world)
        dist.all_reduce(grad, group=group)
    ratio = dist.get_world_size(edp) / dist.get_world_size(dp)
    for p in params:
        if is_moe_param(p):
            p.grad.mul_(ratio)
