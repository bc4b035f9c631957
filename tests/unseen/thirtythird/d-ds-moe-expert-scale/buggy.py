"""Reduction of dense and expert gradients outside ZeRO.

Source: https://github.com/deepspeedai/DeepSpeed/pull/5259
Wrong: expert gradients are averaged over the expert-data-parallel ranks only. Through the
all-to-all each expert saw the tokens of ep_size ranks, so its gradient is ep_size times too large
next to the dense ones, and depends on how the job is laid out.
Repair: sum over the expert-data-parallel group, divide by the data-parallel size.
"""
import torch
from deepspeed import comm as dist
from deepspeed.utils import groups


class GradientReducer:
    def __init__(self, module, gradient_predivide_factor=1.0):
        self.module = module
        self.dp_group = groups._get_data_parallel_group()
        self.gradient_predivide_factor = gradient_predivide_factor

    def _allreduce(self, bucket, group, divisor):
        for grad in bucket:
            grad.mul_(1.0 / self.gradient_predivide_factor)
            dist.all_reduce(grad, group=group)
            grad.mul_(self.gradient_predivide_factor / divisor)

    def _expert_grads(self):
        out = {}
        for p in self.module.parameters():
            if getattr(p, "allreduce", True) is False:
                if p.grad is None:  # no token came to this expert
                    p.grad = torch.zeros_like(p)
                out.setdefault(p.group_name, []).append(p.grad)
        return out

    def reduce(self):
        # every rank's loss is the mean over its own tokens
        dense = [p.grad for p in self.module.parameters() if getattr(p, "allreduce", True) and p.grad is not None]
        self._allreduce(dense, self.dp_group, dist.get_world_size(self.dp_group))
        for name, bucket in self._expert_grads().items():
            group = groups._get_expert_data_parallel_group(name)
            self._allreduce(bucket, group, dist.get_world_size(group))  # BUG: tokens come from all of dp_group
