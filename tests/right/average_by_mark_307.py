"""Gradients of norms of a split sequence are summed; those of a router that sees the whole sequence are equal and averaged."""
import torch.distributed as dist


def reduce_over_tp(model, tp_group):
    for param in model.parameters():
        if param.grad is None:
            continue
        if getattr(param, "average_over_tp", False):
            dist.all_reduce(param.grad, op=dist.ReduceOp.AVG, group=tp_group)
        elif getattr(param, "sequence_parallel", False):
            dist.all_reduce(param.grad, op=dist.ReduceOp.SUM, group=tp_group)
