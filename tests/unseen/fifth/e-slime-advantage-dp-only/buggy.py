"""Whitening of advantages with context parallelism."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu


def whiten(advantages, mask):
    # advantages, mask: this context-parallel rank's part of each response
    group = mpu.get_data_parallel_group()  # BUG: the other parts of the responses are left out
    stats = torch.stack([(advantages * mask).sum(), (advantages.square() * mask).sum(), mask.sum()])
    dist.all_reduce(stats, group=group)
    mean = stats[0] / stats[2]
    var = stats[1] / stats[2] - mean.square()
    return (advantages - mean) * torch.rsqrt(var + 1e-8)
