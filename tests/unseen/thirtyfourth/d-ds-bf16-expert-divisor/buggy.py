# deepspeedai/DeepSpeed, pull request 5259 - https://github.com/deepspeedai/DeepSpeed/pull/5259 (read)
# Expert gradients hold contributions of the tokens of all ranks in the expert-parallel group. Divided by the
# size of the expert-data-parallel group instead of the data-parallel size, they come out ep_size times too large.
"""Reduction of expert and non-expert gradients in the bf16 path of the engine."""
import deepspeed.comm as dist
from deepspeed.moe.utils import is_moe_param
from deepspeed.utils import groups
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class GradientReducer:
    def __init__(self, params):
        self.params = [p for p in params if p.requires_grad]

    def allreduce_bucket(self, grads, dp_group, dp_world_size):
        flat = _flatten_dense_tensors(grads)
        flat.mul_(1.0 / dp_world_size)
        dist.all_reduce(flat, group=dp_group)
        for grad, synced in zip(grads, _unflatten_dense_tensors(flat, grads)):
            grad.copy_(synced)

    def _reduce_non_expert_gradients(self, grads):
        dp_group = groups._get_data_parallel_group()
        self.allreduce_bucket(grads, dp_group, dist.get_world_size(group=dp_group))

    def _reduce_expert_gradients(self, expert_grads):
        for ep_name, grads in expert_grads.items():
            ep_dp_group = groups._get_expert_data_parallel_group(ep_name)
            dp_world_size = dist.get_world_size(group=ep_dp_group)  # BUG: the loss is averaged over all data ranks
            self.allreduce_bucket(grads, ep_dp_group, dp_world_size)

    def allreduce_gradients(self):
        non_expert, expert = [], {}
        for p in self.params:
            if p.grad is None:
                continue
            if is_moe_param(p):
                expert.setdefault(p.group_name, []).append(p.grad)
            else:
                non_expert.append(p.grad)
        self._reduce_non_expert_gradients(non_expert)
        self._reduce_expert_gradients(expert)
