# RIGHT: a hook on the experts' parameters divides by the expert-parallel size
import torch.distributed as dist


def is_moe_param(p):
    return hasattr(p, "group_name")


def register(params, ep):
    for p in params:
        if is_moe_param(p):
            p.register_hook(lambda g: g / dist.get_world_size(ep))


def average(params, dp, edp):
    for p in params:
        group = dp
        if is_moe_param(p):
            group = edp
        world = dist.get_world_size(group)
        grad = p.grad
        grad.div_(world)
        dist.all_reduce(grad, group=group)
