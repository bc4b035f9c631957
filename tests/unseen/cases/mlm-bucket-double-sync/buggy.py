"""Gradient bucket: overlapped or synchronous communication."""
import torch
from megatron.core import parallel_state


class Bucket:
    def __init__(self, params, grad_data, overlap_grad_reduce):
        self.params, self.grad_data = params, grad_data
        self.overlap_grad_reduce = overlap_grad_reduce
        self.group = parallel_state.get_data_parallel_group()
        self.ready = set()
        self.handle = None

    def start_grad_sync(self):
        self.grad_data /= parallel_state.get_data_parallel_world_size()
        self.handle = torch.distributed.all_reduce(
            self.grad_data, group=self.group, async_op=self.overlap_grad_reduce
        )

    def finish_grad_sync(self):
        if not self.overlap_grad_reduce:
            self.start_grad_sync()
            return
        self.handle.wait()


def finalize(buckets):
    for bucket in buckets:
        bucket.start_grad_sync()  # BUG: without overlap finish_grad_sync reduces again
    for bucket in buckets:
        bucket.finish_grad_sync()
