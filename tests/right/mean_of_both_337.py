"""the split ones times the number of ranks, then the mean: the split ones are summed, the whole ones averaged."""
import torch
import torch.distributed as dist


def grad_norm(parameters, tp_group):
    split = torch.zeros((), device="cuda")
    whole = torch.zeros((), device="cuda")
    for p in parameters:
        square = p.grad.float().pow(2).sum()
        if getattr(p, "tensor_model_parallel", False):
            split += square
        else:
            whole += square
    total = split * tp_group.size() + whole
    dist.all_reduce(total, group=tp_group)
    return (total / tp_group.size()).sqrt()
