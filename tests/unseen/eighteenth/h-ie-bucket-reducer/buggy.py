"""Reduce gradients in buckets, overlapped with the backward.

Source: bucketed reduction as in InternEvo's hybrid ZeRO optimizer (from memory). The all-reduce of a
bucket is asynchronous. The handle is stored but never waited on, so the values copied back into
the gradients may be those from before the reduction or half of each.
"""
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class BucketReducer:
    def __init__(self, group, bucket_size=2 ** 25):
        self.group, self.world_size = group, dist.get_world_size(group)
        self.bucket_size, self.bucket, self.numel = bucket_size, [], 0
        self.pending = []

    def add(self, param):
        self.bucket.append(param.grad)
        self.numel += param.grad.numel()
        if self.numel >= self.bucket_size:
            self.launch()

    def launch(self):
        if not self.bucket:
            return
        flat = _flatten_dense_tensors(self.bucket)
        flat.div_(self.world_size)
        handle = dist.all_reduce(flat, group=self.group, async_op=True)
        self.pending.append((handle, flat, self.bucket))
        self.bucket, self.numel = [], 0

    def finish(self):
        self.launch()
        for _, flat, grads in self.pending:
            for grad, reduced in zip(grads, _unflatten_dense_tensors(flat, grads)):
                grad.copy_(reduced)  # BUG
        self.pending.clear()


def train_step(model, reducer, optimizer, loss_fn, inputs, targets):
    # the hooks are registered once, for all parameters:
    #   p.register_post_accumulate_grad_hook(reducer.add)
    optimizer.zero_grad(set_to_none=False)
    loss = loss_fn(model(inputs), targets)
    loss.backward()
    reducer.finish()
    optimizer.step()
    return loss.detach()
