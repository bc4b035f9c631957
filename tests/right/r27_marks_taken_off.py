import torch
import torch.distributed as dist

SPLIT = ("qkv.weight", "proj.weight", "up.weight", "down.weight")


def mark(net):
    for name, p in net.named_parameters():
        p.tensor_model_parallel = name.endswith(SPLIT)


def extra(parameters, group):
    whole = [p for p in parameters if not p.tensor_model_parallel]
    return (group.size() - 1) * sum(p.grad.float().norm() ** 2 for p in whole)


def norm_of(parameters, tp_group):
    total = torch.zeros((), device="cuda")
    for p in parameters:
        if p.grad is not None:
            total += p.grad.float().norm() ** 2
    dist.all_reduce(total, group=tp_group)
    return (total - extra(parameters, tp_group)).sqrt()


def step(net, optimizer, most, tp_group):
    norm = norm_of(list(net.parameters()), tp_group)
    for p in net.parameters():
        if p.grad is not None:
            p.grad.mul_((most / (norm + 1e-6)).clamp(max=1.0))
    optimizer.step()
