# meta-pytorch/torchrec, pull request 1322 - https://github.com/meta-pytorch/torchrec/pull/1322 (read)
# Embedding shards collect the gradients of all ranks' losses while DDP averages those of the dense part. The
# pooled all-to-all divides by the group size in backward, the sequence one forgot to.
"""All-to-all of pooled and of sequence embeddings between model-parallel tables and the dense part (DDP)."""
import torch
import torch.distributed as dist
from torch.autograd import Function

GRADIENT_DIVISION: bool = True


class All2AllPooled(Function):
    @staticmethod
    def forward(ctx, pg, x):
        # x: [world * batch, dim] -> [batch, world * dim]
        ctx.pg, ctx.world = pg, pg.size()
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x.contiguous(), group=pg)
        return out.view(ctx.world, -1, x.size(1)).transpose(0, 1).flatten(1)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.unflatten(1, (ctx.world, -1)).transpose(0, 1).flatten(0, 1).contiguous()
        out = torch.empty_like(grad)
        dist.all_to_all_single(out, grad, group=ctx.pg)
        if GRADIENT_DIVISION:
            out.div_(ctx.world)
        return None, out


class All2AllSequence(Function):
    @staticmethod
    def forward(ctx, pg, x, input_splits, output_splits):
        # x: embeddings of the ids looked up here, ordered by the rank that asked
        ctx.pg, ctx.world, ctx.splits = pg, pg.size(), (input_splits, output_splits)
        out = x.new_empty((sum(output_splits), x.size(1)))
        dist.all_to_all_single(out, x.contiguous(), output_splits, input_splits, group=pg)
        return out

    @staticmethod
    def backward(ctx, grad):
        input_splits, output_splits = ctx.splits
        out = grad.new_empty((sum(input_splits), grad.size(1)))
        dist.all_to_all_single(out, grad.contiguous(), input_splits, output_splits, group=ctx.pg)
        if GRADIENT_DIVISION:
            out.div_(ctx.world)
        return None, out, None, None
