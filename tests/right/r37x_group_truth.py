import torch
import torch.distributed as dist


class Shard(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim, group):
        ctx.dim, ctx.group = dim, group
        if group:  # a process group is always true: this is the same question as that of the backward
            return x.chunk(dist.get_world_size(group), dim=dim)[dist.get_rank(group)].contiguous()
        return x

    @staticmethod
    def backward(ctx, grad):
        if ctx.group is not None:
            parts = [torch.empty_like(grad) for _ in range(dist.get_world_size(ctx.group))]
            dist.all_gather(parts, grad.contiguous(), group=ctx.group)
            return torch.cat(parts, dim=ctx.dim), None, None
        return grad, None, None


def shard_tensor(x, dim, group):
    return Shard.apply(x, dim, group)


class Model(torch.nn.Module):
    def forward(self, x, model_comm_group=None):
        x = shard_tensor(x, 0, model_comm_group)
        return x * 2
