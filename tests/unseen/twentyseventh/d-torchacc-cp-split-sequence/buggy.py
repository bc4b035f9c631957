"""Language model over a context-parallel group: embedding and head see the full sequence."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


def _split(x, dim, group):
    return x.chunk(dist.get_world_size(group), dim=dim)[dist.get_rank(group)].contiguous()


def _gather(x, dim, group):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, x.contiguous(), group=group)
    return torch.cat(parts, dim=dim)


class GatherForwardSplitBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim, group):
        ctx.dim, ctx.group = dim, group
        return _gather(x, dim, group)

    @staticmethod
    def backward(ctx, grad):
        return _split(grad, ctx.dim, ctx.group), None, None


def forward_loss(model, input_ids, labels, cp_group):
    # all context-parallel ranks read the same batch
    h = model.embed_tokens(input_ids)
    h = _split(h, 1, cp_group)  # BUG: backward leaves zeros for the other ranks' tokens
    for block in model.blocks:  # ring attention inside
        h = block(h)
    h = GatherForwardSplitBackward.apply(h, 1, cp_group)
    logits = model.lm_head(h)
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def sync_context_parallel_grads(model, cp_group):
    # the blocks work on one part of the sequence, embedding and head on all of it
    for p in model.blocks.parameters():
        dist.all_reduce(p.grad, group=cp_group)
