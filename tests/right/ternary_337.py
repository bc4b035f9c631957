"""the whole ones are added on the first rank, by a conditional expression."""
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
    total = split + (whole if dist.get_rank(tp_group) == 0 else 0.0)
    dist.all_reduce(total, group=tp_group)
    return total.sqrt()
