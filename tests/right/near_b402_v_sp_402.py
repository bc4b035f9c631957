import torch
import torch.distributed as dist
import torch.nn as nn
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region

class _LinearCE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, e, c, picked, group):
        logits = e @ c.t()
        top = logits.amax(dim=-1)
        dist.all_reduce(top, op=dist.ReduceOp.MAX, group=group)
        total = (logits - top[:, None]).exp().sum(dim=-1)
        dist.all_reduce(total, group=group)
        ctx.save_for_backward(e, c, total.log() + top)
        return total.log() + top - picked

    @staticmethod
    def backward(ctx, grad):
        e, c, lse = ctx.saved_tensors
        d = (e @ c.t() - lse[:, None]).exp() * grad[:, None]
        return d @ c, d.t() @ e, -grad, None



def loss(hidden, weight, picked, group):
    # the backward of the gather sums the gradients and hands each rank its part of the sequence
    hidden = gather_from_sequence_parallel_region(hidden, tensor_parallel_output_grad=True)
    return _LinearCE.apply(hidden, weight, picked, group).mean()
