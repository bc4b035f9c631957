"""Data-parallel gradient reduction for a MoE model: dense and expert parameters in separate buckets."""
import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


def is_moe_param(p):
    return not getattr(p, "allreduce", True)


class BucketedReducer:
    """ep_size * expert_dp_size == dp_size; each rank's loss is the mean over its own tokens."""

    def __init__(self, module, dp_group, expert_dp_group):
        params = [p for p in module.parameters() if p.requires_grad]
        self.dense = [p for p in params if not is_moe_param(p)]
        self.experts = [p for p in params if is_moe_param(p)]
        self.dp_group, self.expert_dp_group = dp_group, expert_dp_group

    @staticmethod
    def _allreduce(params, group, divisor):
        if not params:
            return
        for p in params:
            if p.grad is None:  # e.g. an expert without tokens on this rank
                p.grad = torch.zeros_like(p)
        grads = [p.grad for p in params]
        flat = _flatten_dense_tensors(grads)
        flat.div_(divisor)
        dist.all_reduce(flat, group=group)
        for g, synced in zip(grads, _unflatten_dense_tensors(flat, grads)):
            g.copy_(synced)

    @torch.no_grad()
    def reduce(self):
        dp_size = dist.get_world_size(self.dp_group)
        self._allreduce(self.dense, self.dp_group, dp_size)
        self._allreduce(self.experts, self.expert_dp_group, dp_size)
