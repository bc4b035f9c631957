import torch
import torch.distributed as dist


def register(model, cfg, tp_group):
    tp_size = dist.get_world_size(tp_group)

    def average(g):
        g = g / tp_size
        dist.all_reduce(g, group=tp_group)
        return g

    if not cfg.sequence_parallel:
        for p in model.norms.parameters():
            p.register_hook(average)
