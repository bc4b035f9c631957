"""Bucketed gradient reduction with a flush at the end of backward."""
import torch
import torch.distributed as dist


class Bucket:
    def __init__(self, params):
        self.params = params
        self.buffer = torch.zeros(sum(p.numel() for p in params), device=params[0].device)
        self.ready, self.sent = 0, False


class BucketReducer:
    def __init__(self, buckets, group):
        self.buckets, self.group = buckets, group
        self.world = dist.get_world_size(group)
        self.handles = []
        for bucket in buckets:
            offset = 0
            for p in bucket.params:
                p.register_post_accumulate_grad_hook(self._make_hook(bucket, offset))
                offset += p.numel()

    def _make_hook(self, bucket, offset):
        def hook(p):
            bucket.buffer[offset:offset + p.numel()].copy_(p.grad.flatten())
            bucket.ready += 1
            if bucket.ready == len(bucket.params):
                self._send(bucket)
        return hook

    def _send(self, bucket):
        bucket.buffer.div_(self.world)
        self.handles.append(dist.all_reduce(bucket.buffer, group=self.group, async_op=True))
        bucket.sent = True

    def finish(self):
        """Called after backward; unused parameters leave their bucket incomplete."""
        for bucket in self.buckets:
            if not bucket.sent:
                self._send(bucket)
        for handle in self.handles:
            handle.wait()
        self.handles.clear()
        for bucket in self.buckets:
            grads = bucket.buffer.split([p.numel() for p in bucket.params])
            for p, g in zip(bucket.params, grads):
                p.grad = g.view_as(p).clone()
            bucket.buffer.zero_()
            bucket.ready, bucket.sent = 0, False
