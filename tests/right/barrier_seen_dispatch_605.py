# Right: the first rank prepares, the others wait before; the second barrier comes from a dict of functions.
import torch
import torch.distributed as dist


OPS = {"op": dist.barrier}


def prepare(build, path):
    if dist.get_rank() != 0:
        dist.barrier()
    data = build(path)
    if dist.get_rank() == 0:
        OPS["op"]()
    return data
