import torch.distributed as dist


def prepare(model, n):
    for name, p in model.named_parameters():
        if "experts" in name:
            p.register_hook(lambda g: g / n)


def reduce_gradients(model, dp_group, edp_group):
    for name, p in model.named_parameters():
        group = edp_group if "experts" in name else dp_group
        p.grad.div_(dist.get_world_size(group))
        dist.all_reduce(p.grad, group=group)
