import torch
import torch.distributed as dist


def register(model, tp_group, tp_size):
    """Without sequence parallelism every rank has the whole sequence: gradients of norms are equal but for noise, and averaged."""
    for p in model.norms.parameters():
        def hook(g):
            g = g / tp_size
            dist.all_reduce(g, group=tp_group)
            return g
        p.register_hook(hook)
