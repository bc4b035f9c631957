"""Linear whose weight is sharded over the weight-parallel group (FSTP).

InternLM/InternEvo 0817b8cf204a, internlm/model/utils.py
"""
import torch
import torch.nn.functional as F
from flash_attn.utils.distributed import all_gather_raw, reduce_scatter_raw
from internlm.core.context import ParallelMode
from internlm.core.context import global_context as gpc


class FSTPFusedDenseFuncTorch(torch.autograd.Function):
    """FusedDenseFunc for FSTP."""

    @staticmethod
    def forward(ctx, x, weight, process_group):
        ctx.process_group = process_group
        ctx.save_for_backward(x, weight)
        total_weight, handle_weight = all_gather_raw(weight, process_group, async_op=True)
        handle_weight.wait()
        return F.linear(x, total_weight)

    @staticmethod
    def backward(ctx, grad_output):
        process_group = ctx.process_group
        x, weight = ctx.saved_tensors
        grad_output = grad_output.contiguous()
        grad_2d = grad_output.reshape(-1, grad_output.shape[-1])

        world_size = gpc.get_world_size(ParallelMode.WEIGHT)
        if world_size > 1:
            total_weight, handle_weight = all_gather_raw(weight, process_group, async_op=True)
            handle_weight.wait()
        else:
            total_weight = weight

        grad_weight = grad_2d.t().mm(x.reshape(-1, x.shape[-1]))
        if world_size > 1:
            grad_weight, handle_grad_weight = reduce_scatter_raw(grad_weight, process_group, async_op=True)
            handle_grad_weight.wait()
        grad_input = F.linear(grad_output, total_weight.t())
        return grad_input, grad_weight, None


class FSTPLinear(torch.nn.Linear):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features // gpc.get_world_size(ParallelMode.WEIGHT), bias=False)

    def forward(self, x):
        return FSTPFusedDenseFuncTorch.apply(x, self.weight, gpc.get_group(ParallelMode.WEIGHT))
