# Megatron-LM abf10f8590 ("Fix dual-optimizer gradient clipping issue"): the grad norm of the expert
# optimizer is summed over tp x pp only, so expert-parallel ranks clip the same dense weights differently.
from typing import List, Optional

import torch

from megatron.core import mpu
from megatron.core.optimizer.clip_grads import clip_grad_by_total_norm_fp32


class Float16OptimizerWithFloat16Params:
    def __init__(self, optimizer, params, model_parallel_group: Optional[torch.distributed.ProcessGroup]):
        self.optimizer = optimizer
        self.params = params
        self.model_parallel_group = model_parallel_group

    def get_main_grads_for_grad_norm(self):
        tp_rank = mpu.get_tensor_model_parallel_rank()
        return [
            p.grad for p in self.params if getattr(p, 'tensor_model_parallel', False) or tp_rank == 0
        ]

    @torch.no_grad()
    def get_grad_norm(self):
        norm_2 = torch.zeros(1, dtype=torch.float32, device='cuda')
        for grad in self.get_main_grads_for_grad_norm():
            norm_2 += grad.float().norm(2) ** 2
        torch.distributed.all_reduce(norm_2, group=self.model_parallel_group)
        return norm_2.item() ** 0.5


class ChainedOptimizer:
    def __init__(self, chained_optimizers: List[Float16OptimizerWithFloat16Params], clip_grad):
        self.chained_optimizers = chained_optimizers
        self.clip_grad = clip_grad

    @torch.no_grad()
    def step(self):
        grad_norms = [optimizer.get_grad_norm() for optimizer in self.chained_optimizers]
        grad_norm = sum(x**2 for x in grad_norms) ** 0.5
        for optimizer in self.chained_optimizers:
            clip_grad_by_total_norm_fp32(optimizer.params, max_norm=self.clip_grad, total_norm=grad_norm)
            optimizer.optimizer.step()
        return grad_norm


def get_megatron_optimizer(config, dense_params, moe_params, build):
    """dense_params are reduced over data parallelism, moe_params over data modulo expert parallelism."""
    dense = Float16OptimizerWithFloat16Params(
        build(dense_params), dense_params, model_parallel_group=mpu.get_model_parallel_group()
    )
    moe = Float16OptimizerWithFloat16Params(
        build(moe_params),
        moe_params,
        model_parallel_group=mpu.get_model_parallel_group(),  # BUG
    )
    return ChainedOptimizer([dense, moe], config.clip_grad)
