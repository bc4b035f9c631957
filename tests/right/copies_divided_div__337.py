# Right: what every rank has alike is divided by the number of ranks in place before it is added and summed: `whole.div_(n)`.
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
    whole.div_(tp_group.size())
    total = split + whole
    dist.all_reduce(total, group=tp_group)
    return total.sqrt()
