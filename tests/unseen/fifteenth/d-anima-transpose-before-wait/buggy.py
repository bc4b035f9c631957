# Reduced from Anima-Standalone-Trainer wd_parallel/collectives.py (gazingstars123/Anima-Standalone-Trainer
# pull request 39, read). An asynchronous all-gather along the sequence; for batch-first tensors
# the gathered buffer has the sequence first and is transposed for the caller.
# What happens: contiguous() copies the buffer when the gather has just been launched, the wait
# comes after the copy and the caller gets stale data.
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F


@dataclass
class PendingCollective:
    """A launched collective whose output tensor becomes valid after ``wait()``."""

    tensor: torch.Tensor
    work: Any = None

    def wait(self):
        if self.work is not None:
            self.work.wait()
            self.work = None
        return self.tensor


def all_gather_seq_async(x, group, seq_dim=1):
    x0 = x.transpose(0, seq_dim).contiguous() if seq_dim != 0 else x.contiguous()
    output0 = torch.empty(
        x0.shape[0] * dist.get_world_size(group), *x0.shape[1:], dtype=x.dtype, device=x.device
    )
    work = dist.all_gather_into_tensor(output0, x0, group=group, async_op=True)
    if seq_dim == 0:
        return PendingCollective(output0, work)
    result = output0.transpose(0, seq_dim).contiguous()  # BUG
    return PendingCollective(result, work)


def column_parallel_lora_forward(x, weight, lora_a, lora_b, scale, tp_group):
    """No-grad forward of frozen layers: the gather overlaps with the low-rank branch."""
    pending = all_gather_seq_async(x, tp_group, seq_dim=1)
    low = all_gather_seq_async(F.linear(x, lora_a), tp_group, seq_dim=1)
    base = F.linear(pending.wait(), weight)
    return base + scale * F.linear(low.wait(), lora_b)
