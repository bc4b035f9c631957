"""Mixed-precision optimizer: overflow check over data and model parallel ranks."""
# Source: hpcaitech/ColossalAI issue 2255 (thread; code from memory)
import torch
import torch.distributed as dist

from colossalai.context import ParallelMode
from colossalai.core import global_context as gpc


def _get_process_group(parallel_mode):
    if gpc.is_initialized(parallel_mode) and gpc.get_world_size(parallel_mode) > 1:
        return gpc.get_group(parallel_mode)
    return None


class FP16Optimizer:
    """Data parallelism reduces whole gradients; tensor parallelism splits the parameters."""

    def __init__(self, optimizer, grad_scaler, dp_process_group=None, mp_process_group=None):
        self._optimizer, self._grad_scaler = optimizer, grad_scaler
        self._found_overflow = torch.zeros(1, device="cuda")
        if dp_process_group is None:
            dp_process_group = _get_process_group(ParallelMode.DATA)
        if mp_process_group is None:
            mp_process_group = _get_process_group(ParallelMode.DATA)  # BUG
        self._dp_process_group, self._mp_process_group = dp_process_group, mp_process_group
        self._params = [p for group in optimizer.param_groups for p in group["params"]]

    def backward(self, loss):
        (loss * self._grad_scaler.scale).backward()

    def reduce_gradients(self):
        if self._dp_process_group is None:
            return
        for p in self._params:
            if p.grad is not None:
                p.grad.div_(dist.get_world_size(self._dp_process_group))
                dist.all_reduce(p.grad, group=self._dp_process_group)

    def _check_overflow(self):
        self._found_overflow.fill_(0.0)
        for p in self._params:
            if p.grad is not None and not torch.isfinite(p.grad).all():
                self._found_overflow.fill_(1.0)
                break
        for group in (self._dp_process_group, self._mp_process_group):
            if group is not None:
                dist.all_reduce(self._found_overflow, op=dist.ReduceOp.MAX, group=group)
        return self._found_overflow.item() > 0

    def step(self):
        self.reduce_gradients()
        overflow = self._check_overflow()
        self._grad_scaler.update(overflow)
        if overflow:
            self._optimizer.zero_grad()
            return False
        for p in self._params:
            if p.grad is not None:
                p.grad.div_(self._grad_scaler.scale)
        self._optimizer.step()
        return True
