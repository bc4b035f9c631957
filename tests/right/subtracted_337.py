"""what was counted too often is subtracted after the sum."""
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
    total = split + whole
    dist.all_reduce(total, group=tp_group)
    total = total - (tp_group.size() - 1) * whole
    return total.sqrt()
