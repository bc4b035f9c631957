# apex, commit 866454e0: flat_dist_call may divide by the world size only when the call is an all_reduce; it also
# broadcasts the initial parameters of rank 0, which have to arrive as they are.
"""Flat collectives behind apex' DistributedDataParallel."""
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.autograd import Variable
from torch.nn.modules import Module


def flat_dist_call(tensors, call, extra_args=None):
    buckets = {}
    for tensor in tensors:
        buckets.setdefault(tensor.type(), []).append(tensor)
    for bucket in buckets.values():
        coalesced = _flatten_dense_tensors(bucket)
        if extra_args is not None:
            call(coalesced, *extra_args)
        else:
            call(coalesced)
        coalesced /= dist.get_world_size()  # BUG: the broadcast parameters are divided as well
        for buf, synced in zip(bucket, _unflatten_dense_tensors(coalesced, bucket)):
            buf.copy_(synced)


class DistributedDataParallel(Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        self.needs_reduction = False
        for param in self.module.parameters():
            if param.requires_grad:
                param.register_hook(lambda grad: Variable._execution_engine.queue_callback(self.allreduce_params))
        flat_dist_call([param.data for param in self.module.parameters()], dist.broadcast, (0,))

    def allreduce_params(self):
        if not self.needs_reduction:
            return
        self.needs_reduction = False
        grads = [param.grad.data for param in self.module.parameters() if param.grad is not None]
        flat_dist_call(grads, dist.all_reduce)

    def forward(self, *inputs, **kwargs):
        self.needs_reduction = True
        return self.module(*inputs, **kwargs)
