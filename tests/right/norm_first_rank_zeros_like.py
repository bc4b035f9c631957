# What it does: norm over split and whole parameters; the whole ones count on the first rank alone.
# Why it is right: on all ranks but one the second sum is replaced by zeros.
import torch, torch.distributed as dist


def grad_norm(parameters, tp_group):
    split, whole = torch.zeros(()), torch.zeros(())
    for p in parameters:
        square = p.grad.float().pow(2).sum()
        if getattr(p, "tensor_model_parallel", False):
            split += square
        else:
            whole += square
    if dist.get_rank(tp_group) != 0:
        whole = torch.zeros_like(whole)
    total = split + whole
    dist.all_reduce(total, group=tp_group)
    return total.sqrt()
