# What it does: the same with torch.where.
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
    first = torch.tensor(dist.get_rank(tp_group) == 0)
    total = split + torch.where(first, whole, torch.zeros_like(whole))
    dist.all_reduce(total, group=tp_group)
    return total.sqrt()
