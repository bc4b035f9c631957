"""Outer data-parallel reduction of a hybrid-sharded model, deferred to the last microbatch."""
from contextlib import contextmanager
import torch


class HybridDataParallel:
    def __init__(self, module, outer_dp_group):
        self.module, self.outer_dp_group = module, outer_dp_group
        self.is_last_microbatch = True

    @contextmanager
    def no_sync(self):
        yield  # BUG: each microbatch reduces the accumulated gradient once more

    def backward(self, loss):
        loss.backward()
        for p in self.module.parameters():
            p.main_grad.add_(p.grad)
            p.grad = None
            if self.is_last_microbatch:
                torch.distributed.all_reduce(p.main_grad, group=self.outer_dp_group)


def forward_backward(model, microbatches, loss_fn):
    # loss_fn divides by the global batch size; main_grad is zero at the start
    with model.no_sync():
        for batch in microbatches[:-1]:
            model.backward(loss_fn(model.module, batch))
    model.backward(loss_fn(model.module, microbatches[-1]))
