# What it does: the same in a helper.
# Why it is right: as above.
import torch, torch.distributed as dist


def only_first(x, rank):
    return x if rank == 0 else torch.zeros_like(x)


def grad_norm(parameters, tp_group):
    split, whole = torch.zeros(()), torch.zeros(())
    for p in parameters:
        square = p.grad.float().pow(2).sum()
        if getattr(p, "tensor_model_parallel", False):
            split += square
        else:
            whole += square
    total = split + only_first(whole, dist.get_rank(tp_group))
    dist.all_reduce(total, group=tp_group)
    return total.sqrt()
