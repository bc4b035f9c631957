import torch.distributed as dist


def squares(parameters, group):
    experts, dense = 0.0, 0.0
    for p in parameters:
        square = p.grad.float().square().sum()
        if hasattr(p, "ep_rank"):
            experts += square
        else:
            dense += square
    dist.all_reduce(experts, group=group)
    return experts, dense


def clip(parameters, largest, ep_group):
    experts, dense = squares(parameters, ep_group)
    norm = (experts + dense).sqrt()
    for p in parameters:
        p.grad.mul_(largest / norm)
