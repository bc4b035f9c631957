import torch.distributed as dist


def reduce_norms(model, tp_group):
    size = dist.get_world_size(tp_group)
    for param in model.parameters():
        if getattr(param, "sequence_parallel", False):
            # AVG keeps bf16 from overflowing in the ring; the factor is put back after
            dist.all_reduce(param.grad, op=dist.ReduceOp.AVG, group=tp_group)
            param.grad.mul_(size)
