"""Context parallelism inside a layer: split the sequence, attend by all-to-all, gather again."""
# AlibabaPAI/torchacc PR 26: the split was a plain chunk; its gradient is zero outside this rank's part.
import torch
import torch.distributed as dist


def _split(x, dim, group):
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    return x.chunk(size, dim=dim)[rank].contiguous()


def _gather(x, dim, group):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, x.contiguous(), group=group)
    return torch.cat(parts, dim=dim)


class SplitForwardGatherBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim, group):
        ctx.dim, ctx.group = dim, group
        return _split(x, dim, group)

    @staticmethod
    def backward(ctx, grad_output):
        return _gather(grad_output, ctx.dim, ctx.group), None, None


class GatherForwardSplitBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim, group):
        ctx.dim, ctx.group = dim, group
        return _gather(x, dim, group)

    @staticmethod
    def backward(ctx, grad_output):
        return _split(grad_output, ctx.dim, ctx.group), None, None


def gather_forward_split_backward(x, dim, group):
    return GatherForwardSplitBackward.apply(x, dim, group)


def split_forward_gather_backward(x, dim, group):
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    return x.chunk(size, dim=dim)[rank].contiguous()  # BUG: nothing gathers the gradient


class ContextParallelBlock(torch.nn.Module):
    def __init__(self, embed, layers, head, group):
        super().__init__()
        self.embed, self.layers, self.head = embed, layers, head
        self.group = group

    def forward(self, input_ids):
        # input_ids: [b, s], the same on all ranks of the context-parallel group
        x = self.embed(input_ids)
        x = split_forward_gather_backward(x, 1, self.group)
        for layer in self.layers:
            x = layer(x)
        x = gather_forward_split_backward(x, 1, self.group)
        return self.head(x)
