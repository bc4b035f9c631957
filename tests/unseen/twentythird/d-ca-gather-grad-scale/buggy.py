"""Sequence parallelism: split after the embedding, gather before the head."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


def _split(x, dim, group):
    return x.chunk(dist.get_world_size(group), dim=dim)[dist.get_rank(group)].contiguous()


def _gather(x, dim, group):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, x, group=group)
    return torch.cat(parts, dim=dim)


class _SplitForwardGatherBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim, group, grad_scale):
        ctx.args = dim, group, grad_scale
        return _split(x, dim, group)

    @staticmethod
    def backward(ctx, g):
        dim, group, grad_scale = ctx.args
        return _gather((g * grad_scale).contiguous(), dim, group), None, None, None


class _GatherForwardSplitBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim, group, grad_scale):
        ctx.args = dim, group, grad_scale
        return _gather(x.contiguous(), dim, group)

    @staticmethod
    def backward(ctx, g):
        dim, group, grad_scale = ctx.args
        return _split(g * grad_scale, dim, group), None, None, None


def loss_fn(embed, layers, head, input_ids, labels, sp_group):
    # ids and labels are the whole sequence on every sp rank;
    # all gradients are averaged over dp x sp afterwards
    sp_size = dist.get_world_size(sp_group)
    h = _SplitForwardGatherBackward.apply(embed(input_ids), 1, sp_group, 1 / sp_size)
    for layer in layers:
        h = layer(h)
    h = _GatherForwardSplitBackward.apply(h, 1, sp_group, 1.0)  # BUG: layers hold parts, the average shrinks them
    logits = head(h)
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())
