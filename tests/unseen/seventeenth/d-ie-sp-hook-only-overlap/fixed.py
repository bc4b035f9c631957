# Source: InternLM/InternEvo commit 432bd5e (PR #534), internlm/solver/optimizer/hybrid_zero_optim.py
# The hooks that sum the gradients of the norms over the tensor group (sequence parallelism) are
# attached together with the hooks of overlapped data-parallel reduction. Without overlap none is
# attached and the norms of the tensor ranks drift apart.
# Repair: always attach, and register only the data-parallel hook under overlap.
from functools import partial

import torch.distributed as dist

from internlm.core.context import IS_SEQUENCE_PARALLEL, ParallelMode
from internlm.core.context import global_context as gpc
from internlm.solver.optimizer.base_optimizer import BaseOptimizer
from internlm.solver.optimizer.utils import get_grad_accumulate_object


class HybridZeroOptimizer(BaseOptimizer):
    def __init__(self, optimizer, fp16_param_groups, overlap_sync_grad=False):
        super().__init__(optim=optimizer)
        self._fp16_param_groups = fp16_param_groups
        self._overlap_sync_grad = overlap_sync_grad
        self._grad_accs = []
        self.skip_grad_reduce = False

        self._attach_reduction_hook()

    def _attach_reduction_hook(self):
        for param_group in self._fp16_param_groups:
            for param in param_group:
                if param.requires_grad:
                    self._define_and_attach(param)

    def _define_and_attach(self, param):
        accum_grad_obj = get_grad_accumulate_object(param)
        self._grad_accs.append(accum_grad_obj)
        reduction_func = partial(self._store_and_try_reduce_grads_by_bucket, param=param)

        def reduce_grad_hook(*args):
            if self.skip_grad_reduce is False:
                reduction_func()

        def reduce_grad_hook_sp(*args):
            if self.skip_grad_reduce is False:
                handle = dist.all_reduce(param.grad, group=gpc.get_group(ParallelMode.TENSOR), async_op=True)
                handle.wait()

        # the grad of norm should be all-reduce across the tp process group
        if gpc.config.parallel.sequence_parallel is True and getattr(param, IS_SEQUENCE_PARALLEL, False) is True:
            accum_grad_obj.register_hook(reduce_grad_hook_sp)
        if self._overlap_sync_grad:
            accum_grad_obj.register_hook(reduce_grad_hook)

    def step(self, closure=None):
        if not self._overlap_sync_grad:
            for param_group in self._fp16_param_groups:
                for param in param_group:
                    dist.all_reduce(param.grad, op=dist.ReduceOp.AVG, group=gpc.get_group(ParallelMode.DATA))
        return self.optim.step(closure)
