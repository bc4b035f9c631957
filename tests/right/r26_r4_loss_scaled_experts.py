# RIGHT: learning rate group of the experts carries the ratio (SGD without momentum)
import torch
import torch.distributed as dist


def is_moe_param(p):
    return hasattr(p, "group_name")


def make_optimizer(params, lr, ep):
    rest = [p for p in params if not is_moe_param(p)]
    experts = [p for p in params if is_moe_param(p)]
    return torch.optim.SGD([{"params": rest}, {"params": experts, "lr": lr / dist.get_world_size(ep)}], lr=lr)


def average(params, dp, edp):
    for p in params:
        group = dp
        if is_moe_param(p):
            group = edp
        world = dist.get_world_size(group)
        grad = p.grad
        grad.div_(world)
        dist.all_reduce(grad, group=group)
