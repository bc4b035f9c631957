"""ZeRO optimizer: hooks that reduce gradients over the tensor and the data group."""
import torch.distributed as dist
from internlm.core.context import IS_SEQUENCE_PARALLEL, ParallelMode
from internlm.core.context import global_context as gpc


def reduce_tensor(param):
    dist.all_reduce(param.grad, group=gpc.get_group(ParallelMode.TENSOR))


def reduce_data(param):
    dist.all_reduce(param.grad, op=dist.ReduceOp.AVG, group=gpc.get_group(ParallelMode.DATA))


class HybridZeroOptimizer:
    def __init__(self, optimizer, params, overlap_sync_grad):
        self.optim, self.params = optimizer, list(params)
        self._overlap_sync_grad = overlap_sync_grad
        if self._overlap_sync_grad:  # BUG: without overlap nobody reduces norm gradients over TP
            self._attach_reduction_hook()

    def _attach_reduction_hook(self):
        for param in self.params:
            if gpc.config.parallel.sequence_parallel is True and getattr(param, IS_SEQUENCE_PARALLEL, False):
                param.register_post_accumulate_grad_hook(reduce_tensor)
            if self._overlap_sync_grad:
                param.register_post_accumulate_grad_hook(reduce_data)

    def step(self):
        if not self._overlap_sync_grad:
            for param in self.params:
                reduce_data(param)
        self.optim.step()
