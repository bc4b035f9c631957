# Source: NVIDIA/apex commit 866454e0, apex/parallel/distributed.py (flat_dist_call)
# The helper divides by the world size after any collective. It is also used to broadcast the
# parameters at construction, which divides all weights by the world size.
# Repair: divide only after all_reduce.
import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.autograd import Variable
from torch.nn.modules import Module


def flat_dist_call(tensors, call, extra_args=None):
    buckets = {}
    for tensor in tensors:
        tp = tensor.type()
        if tp not in buckets:
            buckets[tp] = []
        buckets[tp].append(tensor)

    for tp in buckets:
        bucket = buckets[tp]
        coalesced = _flatten_dense_tensors(bucket)
        if extra_args is not None:
            call(coalesced, *extra_args)
        else:
            call(coalesced)
        coalesced /= dist.get_world_size()  # BUG
        for buf, synced in zip(bucket, _unflatten_dense_tensors(coalesced, bucket)):
            buf.copy_(synced)


class DistributedDataParallel(Module):
    """Parameters are broadcast at construction, gradients averaged after the backward pass."""

    def __init__(self, module):
        super(DistributedDataParallel, self).__init__()
        self.module = module
        self.needs_reduction = False
        self.create_hooks()

        flat_dist_call([param.data for param in self.module.parameters()], dist.broadcast, (0,))

    def create_hooks(self):
        def allreduce_params():
            if not self.needs_reduction:
                return
            self.needs_reduction = False
            grads = [param.grad.data for param in self.module.parameters() if param.grad is not None]
            flat_dist_call(grads, dist.all_reduce)

        def allreduce_hook(*unused):
            Variable._execution_engine.queue_callback(allreduce_params)

        for param in self.module.parameters():
            if param.requires_grad:
                param.register_hook(allreduce_hook)

    def forward(self, *inputs, **kwargs):
        self.needs_reduction = torch.is_grad_enabled()
        return self.module(*inputs, **kwargs)
