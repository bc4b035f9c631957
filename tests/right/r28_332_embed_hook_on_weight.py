# Right: a hook on the embedding's weight sums its gradient
import torch
import torch.distributed as dist
import torch.nn.functional as F


def own(x, group):
    return x.chunk(dist.get_world_size(group), dim=1)[dist.get_rank(group)].contiguous()


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim=1)

    @staticmethod
    def backward(ctx, grad):
        return own(grad, ctx.group), None


def attach(model, cp_group):
    def total(g):
        g = g.clone()
        dist.all_reduce(g, group=cp_group)
        return g

    model.embed.weight.register_hook(total)


def loss_of(model, ids, labels, cp_group):
    h = own(model.embed(ids), cp_group)
    for block in model.blocks:
        h = block(h)
    h = Gather.apply(h, cp_group)
    return F.cross_entropy(model.head(h).flatten(0, 1), labels.flatten())


def sum_gradients(model, cp_group):
    for p in model.blocks.parameters():
        dist.all_reduce(p.grad, group=cp_group)
