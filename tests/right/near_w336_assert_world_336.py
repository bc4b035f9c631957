import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu
from slime.cp import slice_log_prob_with_cp


def whiten(values, masks, totals, responses):
    assert mpu.get_context_parallel_world_size() == 1
    v = torch.cat([slice_log_prob_with_cp(x, t, r) for x, t, r in zip(values, totals, responses)])
    m = torch.cat([slice_log_prob_with_cp(x, t, r) for x, t, r in zip(masks, totals, responses)])
    s, n = (v * m).sum(), m.sum()
    dist.all_reduce(s, group=mpu.get_data_parallel_group())
    dist.all_reduce(n, group=mpu.get_data_parallel_group())
    return v - s / n
