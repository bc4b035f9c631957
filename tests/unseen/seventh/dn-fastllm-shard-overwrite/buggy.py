"""Gradient buffers shared between the stages of a pipeline.

Source: https://github.com/ServiceNow/Fast-LLM/pull/551
"""
import torch
import torch.distributed as dist


class Fsdp:
    def __init__(self, grad_buffer, group):
        self._grad_buffer = grad_buffer  # shared between stages, full precision
        self._group, self._size = group, dist.get_world_size(group)
        n = grad_buffer.numel() // self._size
        self._grad_shard = torch.zeros(n, device=grad_buffer.device)
        self._scratch = torch.empty_like(self._grad_shard)

    def reset_buffer(self):
        self._grad_buffer.zero_()

    def reduce_gradients(self, accumulate: bool):
        """Flush the buffer; accumulate is False for the first flush of a step."""
        if self._size > 1:
            dist.reduce_scatter_tensor(
                self._scratch, self._grad_buffer, op=dist.ReduceOp.AVG, group=self._group
            )
            if accumulate:
                self._grad_shard.add_(self._scratch)
            else:
                self._grad_shard.copy_(self._scratch)
        else:
            self._grad_shard.copy_(self._grad_buffer)  # BUG


def run_step(stages, micro_batches, optimizer):
    for i, mb in enumerate(micro_batches):
        grad = None
        for stage in reversed(stages):
            stage.fsdp.reset_buffer()
            grad = stage.backward(mb, grad)  # adds into stage.fsdp._grad_buffer
            stage.fsdp.reduce_gradients(accumulate=i > 0)
    optimizer.step([stage.fsdp._grad_shard for stage in stages])
