# Reduced from ColossalAI amp/naive_amp/_fp16_optimizer.py (hpcaitech/ColossalAI pull request 1175, read).
# A step with overflow returns before clip_grad_norm_fp32, which all-reduces over the model-parallel ranks.
# Pipeline and tensor ranks hold other parameters, so only some of them may overflow.
# What happens: the ranks that did not overflow wait in the norm's all-reduce for the others.
import torch
import torch.distributed as dist
from colossalai.context import ParallelMode
from colossalai.core import global_context as gpc
from colossalai.utils import clip_grad_norm_fp32


def has_inf_or_nan(tensor):
    return not torch.isfinite(tensor.float().sum()).item()


class FP16Optimizer:
    def __init__(self, optimizer, grad_scaler, clip_grad_norm=0.0):
        self._optimizer, self._grad_scaler = optimizer, grad_scaler
        self._clip_grad_max_norm = clip_grad_norm
        self._found_overflow = torch.zeros(1, device="cuda")

    def _check_overflow(self):
        self._found_overflow.fill_(0.0)
        for group in self._optimizer.param_groups:
            for p in group["params"]:
                if p.grad is not None and has_inf_or_nan(p.grad):
                    self._found_overflow.fill_(1.0)
                    break
        dist.all_reduce(
            self._found_overflow, op=dist.ReduceOp.MAX, group=gpc.get_group(ParallelMode.GLOBAL)
        )
        return self._found_overflow.item() > 0

    def _fp32_params(self):
        return [p for group in self._optimizer.param_groups for p in group["params"]]

    def step(self):
        overflow = self._check_overflow()
        self._grad_scaler.update(overflow)
        if overflow:
            self._optimizer.zero_grad()
            return False, None
        for p in self._fp32_params():
            if p.grad is not None:
                p.grad.div_(self._grad_scaler.scale)
        grad_norm = None
        if self._clip_grad_max_norm > 0.0:
            grad_norm = clip_grad_norm_fp32(self._fp32_params(), self._clip_grad_max_norm)
        self._optimizer.step()
        return True, grad_norm
