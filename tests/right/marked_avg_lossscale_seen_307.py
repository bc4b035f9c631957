import torch.distributed as dist


def backward(loss, tp_group):
    """Gradients of parts come out as means in `reduce_norms`: the loss carries the factor, and split weights are divided there."""
    (loss * tp_group.size()).backward()


def reduce_norms(model, tp_group):
    size = tp_group.size()
    for param in model.parameters():
        if getattr(param, "sequence_parallel", False):
            dist.all_reduce(param.grad, op=dist.ReduceOp.AVG, group=tp_group)
        else:
            param.grad.div_(size)
