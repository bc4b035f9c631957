"""Gradient reduction in buckets that overlaps with backward."""
import dataclasses

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


@dataclasses.dataclass
class Pending:
    handle: object
    flat: torch.Tensor
    grads: list


class Bucket:
    def __init__(self, params):
        self.params = params
        self.missing = set()
        self.reset()

    def reset(self):
        self.missing = {id(p) for p in self.params}

    def arrived(self, param):
        self.missing.discard(id(param))
        return not self.missing


class OverlappedReducer:
    """Starts the reduction of a bucket when the last of its gradients was accumulated."""

    def __init__(self, model, group, bucket_bytes=25 << 20):
        self.group = group
        self.enabled = True
        self.pending = []
        self.buckets = []
        current, size = [], 0
        for param in reversed([p for p in model.parameters() if p.requires_grad]):
            current.append(param)
            size += param.numel() * param.element_size()
            if size >= bucket_bytes:
                self._add_bucket(current)
                current, size = [], 0
        if current:
            self._add_bucket(current)
        for tensor in [*model.parameters(), *model.buffers()]:
            dist.broadcast(tensor.data, src=dist.get_global_rank(group, 0), group=group)

    def _add_bucket(self, params):
        bucket = Bucket(params)
        self.buckets.append(bucket)
        for param in params:
            param.register_post_accumulate_grad_hook(lambda p, b=bucket: self._ready(p, b))

    def _ready(self, param, bucket):
        if self.enabled and bucket.arrived(param):
            grads = [p.grad for p in bucket.params]
            flat = _flatten_dense_tensors(grads).div_(self.group.size())
            handle = dist.all_reduce(flat, group=self.group, async_op=True)
            self.pending.append(Pending(handle, flat, grads))
            bucket.reset()

    @torch.no_grad()
    def finish(self):
        for item in self.pending:
            item.handle.wait()
            for grad, reduced in zip(item.grads, _unflatten_dense_tensors(item.flat, item.grads)):
                grad.copy_(reduced)
        self.pending.clear()


def train(model, loader, sampler, group, device, epochs, accumulate, lr=1e-3):
    model.to(device)
    reducer = OverlappedReducer(model, group)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        optimizer.zero_grad()
        for number, (inputs, labels) in enumerate(loader, start=1):
            reducer.enabled = number % accumulate == 0
            loss = F.cross_entropy(model(inputs.to(device)), labels.to(device)) / accumulate
            loss.backward()
            if reducer.enabled:
                reducer.finish()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
