# torchrec 5e591027 (#1322)
"""Embedding all-to-alls between table-wise sharded tables and data-parallel ranks."""
import torch
import torch.distributed as dist
from torch.autograd import Function

# every rank has the mean loss of its own batch; dense parameters are averaged by DDP
GRADIENT_DIVISION: bool = True


class All2AllPooled(Function):
    @staticmethod
    def forward(ctx, pg, embs):
        # embs: [W * B, D_local], samples of all ranks for this rank's tables (same D_local everywhere)
        ctx.pg = pg
        out = torch.empty_like(embs)
        dist.all_to_all_single(out, embs.contiguous(), group=pg)
        return out

    @staticmethod
    def backward(ctx, grad_output):
        sharded_grad = torch.empty_like(grad_output)
        dist.all_to_all_single(sharded_grad, grad_output.contiguous(), group=ctx.pg)
        if GRADIENT_DIVISION:
            sharded_grad.div_(dist.get_world_size(ctx.pg))
        return None, sharded_grad


class All2AllSequence(Function):
    @staticmethod
    def forward(ctx, pg, embs, input_splits, output_splits):
        # embs: [sum(input_splits), D], looked-up rows for the ids every rank asked for
        ctx.pg, ctx.splits = pg, (input_splits, output_splits)
        out = embs.new_empty(sum(output_splits), embs.shape[1])
        dist.all_to_all_single(out, embs.contiguous(), output_splits, input_splits, group=pg)
        return out

    @staticmethod
    def backward(ctx, grad_output):
        input_splits, output_splits = ctx.splits
        sharded_grad = grad_output.new_empty(sum(input_splits), grad_output.shape[1])
        dist.all_to_all_single(
            sharded_grad, grad_output.contiguous(), input_splits, output_splits, group=ctx.pg
        )
        if GRADIENT_DIVISION:
            sharded_grad.div_(dist.get_world_size(ctx.pg))
        return None, sharded_grad, None, None
