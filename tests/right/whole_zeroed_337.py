"""the sum of the whole ones is set to zero on all ranks but the first before the total is summed."""
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
    if dist.get_rank(tp_group) > 0:
        whole.zero_()
    total = split + whole
    dist.all_reduce(total, group=tp_group)
    return total.sqrt()
