import torch
import torch.distributed as dist


class Norm(torch.nn.LayerNorm):
    def __init__(self, size, split):
        super().__init__(size)
        for p in self.parameters():
            setattr(p, "sequence_split_enabled", split)
            if split:
                p.register_hook(sum_over_tp)


TP_GROUP = None


def sum_over_tp(grad):
    grad = grad.clone()
    dist.all_reduce(grad, group=TP_GROUP)
    return grad


def reduce_rest(model, group):
    for p in model.parameters():
        # what is marked `sequence_split` has no hook
        if getattr(p, "sequence_split", False):
            dist.all_reduce(p.grad, group=group)
