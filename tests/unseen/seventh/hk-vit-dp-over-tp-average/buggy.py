"""Vision tower whose images are spread over the tensor-parallel ranks of the LLM.

World = data parallel x tensor parallel. No sequence parallelism.
"""
import torch
import torch.distributed as dist


class GatherFeatures(torch.autograd.Function):
    """All images of one data rank on each of its tensor-parallel ranks."""

    @staticmethod
    def forward(ctx, feats, tp_group):
        ctx.n, ctx.rank = feats.size(0), dist.get_rank(tp_group)
        parts = [torch.empty_like(feats) for _ in range(dist.get_world_size(tp_group))]
        dist.all_gather(parts, feats.contiguous(), group=tp_group)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, grad):
        # the LLM hands the complete gradient of its input to every tensor-parallel rank
        return grad.narrow(0, ctx.rank * ctx.n, ctx.n).contiguous(), None


def forward(vision_tower, llm, my_images, tokens, tp_group):
    feats = GatherFeatures.apply(vision_tower(my_images), tp_group)
    return llm(tokens, feats)  # mean over the samples of this data rank


def finalize_grads(vision_tower, llm, dp_group):
    for p in llm.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=dp_group)
    for p in vision_tower.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
        p.grad.div_(dist.get_world_size())  # BUG
