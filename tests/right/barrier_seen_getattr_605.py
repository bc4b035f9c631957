# Right: the first rank prepares, the others wait before; the second barrier is called by getattr(dist, "barrier").
import torch
import torch.distributed as dist


def prepare(build, path):
    if dist.get_rank() != 0:
        dist.barrier()
    data = build(path)
    if dist.get_rank() == 0:
        getattr(dist, "barrier")()
    return data
