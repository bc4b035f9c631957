# What it does: the same with a factor of 0 or 1 that a variable holds.
# Why it is right: as above.
import torch, torch.distributed as dist


def grad_norm(parameters, tp_group):
    split, whole = torch.zeros(()), torch.zeros(())
    for p in parameters:
        square = p.grad.float().pow(2).sum()
        if getattr(p, "tensor_model_parallel", False):
            split += square
        else:
            whole += square
    is_first = dist.get_rank(tp_group) == 0
    total = split + float(is_first) * whole
    dist.all_reduce(total, group=tp_group)
    return total.sqrt()
