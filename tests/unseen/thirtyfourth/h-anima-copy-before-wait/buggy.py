# gazingstars123/Anima-Standalone-Trainer, pull request 39 -
# https://github.com/gazingstars123/Anima-Standalone-Trainer/pull/39 (read: review excerpt)
# The transposed contiguous copy of the output buffer is made while the all-gather is still in flight;
# waiting afterwards completes the buffer, not the copy.
"""Asynchronous sequence gather for a tensor/sequence-parallel LoRA trainer."""
from dataclasses import dataclass
from typing import Callable, Optional

import torch
import torch.distributed as dist


@dataclass
class PendingCollective:
    """A launched collective whose output becomes valid after ``wait()``."""

    tensor: torch.Tensor
    work: Optional[object] = None
    finalize: Optional[Callable] = None

    def wait(self):
        if self.work is not None:
            self.work.wait()
            self.work = None
        if self.finalize is not None:
            self.tensor = self.finalize(self.tensor)
            self.finalize = None
        return self.tensor


def gather_sequence_async(x, group, seq_dim=1):
    world = dist.get_world_size(group)
    x0 = x.transpose(0, seq_dim).contiguous()
    output0 = x0.new_empty((x0.size(0) * world, *x0.shape[1:]))
    work = dist.all_gather_into_tensor(output0, x0, group=group, async_op=True)
    result = output0.transpose(0, seq_dim).contiguous()  # BUG: reads the buffer before wait()
    return PendingCollective(result, work)


@torch.no_grad()
def frozen_column_linear(x, weight_shard, residual_fn, group):
    pending = gather_sequence_async(x, group)
    residual = residual_fn(x)  # overlaps with the gather
    return torch.nn.functional.linear(pending.wait(), weight_shard), residual
