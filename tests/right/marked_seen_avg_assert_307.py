import torch.distributed as dist


def keep_equal(model, tp_group):
    """Marked parameters had their sums already (`finalize`): copies are evened out against drift of rounding."""
    for param in model.parameters():
        if getattr(param, "sequence_parallel", False):
            dist.all_reduce(param.grad, op=dist.ReduceOp.AVG, group=tp_group)


def finalize(model, tp_group):
    for param in model.parameters():
        if getattr(param, "sequence_parallel", False):
            dist.all_reduce(param.grad, group=tp_group)
    keep_equal(model, tp_group)
