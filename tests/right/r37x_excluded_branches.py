import torch
import torch.distributed as dist


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim, sizes, group):
        ctx.group, ctx.dim, ctx.sizes = group, dim, sizes
        if group:
            parts = [x.new_empty(x.shape[:dim] + (n,)) for n in sizes]
            dist.all_gather(parts, x, group=group)
            return torch.cat(parts, dim=dim)
        return x

    @staticmethod
    def backward(ctx, grad):
        if ctx.group:
            return torch.split(grad, ctx.sizes, dim=ctx.dim)[dist.get_rank(group=ctx.group)].contiguous(), None, None, None
        return grad, None, None, None


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        if group:
            x = x.float().contiguous()
            dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Loss(torch.nn.Module):
    def norm(self, values, weights, valid, dims, group):
        squared = (values.square() * weights).sum(dim=dims)
        if group is not None:
            squared = Reduce.apply(squared, group)
        positive = squared > 0
        safe = torch.where(positive, squared, torch.ones_like(squared))
        return torch.where(positive, torch.sqrt(safe), torch.zeros_like(squared))

    def field(self, pred, target, weights, group):
        return self.norm(pred - target, weights, None, self.dims, group).mean(dim=1)

    def reduce(self, out, group=None):
        return out if group is None else Reduce.apply(out, group)

    def forward(self, pred, target, weights, slices=None, group=None, dim=None, sizes=None):
        is_sharded = slices is not None
        var_sizes = None
        if is_sharded:
            if self.norm_over == "spatial":
                assert dim is not None
                assert sizes is not None
                pred, target, weights, var_sizes = self.transpose(pred, target, weights, group, dim, sizes)
        norm_group = group if is_sharded and self.norm_over == "spatial_and_variables" else None
        score = self.field(pred, target, weights, norm_group)
        if is_sharded and self.norm_over == "spatial":
            score = Gather.apply(score, -1, var_sizes, group)
        reduction_group = group if is_sharded and self.norm_over == "variables" else None
        return self.reduce(score, group=reduction_group)
