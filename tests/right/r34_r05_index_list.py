import torch
import torch.distributed as dist


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        rows = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(rows, x.contiguous())
        return tuple(rows)

    @staticmethod
    def backward(ctx, *grads):
        whole = torch.stack(grads)
        dist.all_reduce(whole)
        own = whole[[dist.get_rank()]]
        return own[0]
