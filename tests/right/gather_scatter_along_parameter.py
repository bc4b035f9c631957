"""All-gather and reduce-scatter along one dim that a parameter gives; either gives back what it is given on one rank (savanna)."""
import torch
import torch.distributed as dist

_GROUP = None
_FP32 = None
_WORLD_SIZE = None


def initialize(ranks, fp32):
    global _GROUP, _FP32
    _GROUP = dist.new_group(ranks)
    _FP32 = fp32


def get_group():
    assert _GROUP is not None
    return _GROUP


def set_world_size(n):
    global _WORLD_SIZE
    _WORLD_SIZE = n


def get_world_size():
    if _WORLD_SIZE is not None:
        return _WORLD_SIZE
    return dist.get_world_size(group=get_group())


def get_fp32():
    assert _FP32 is not None
    return _FP32


def _reduce_scatter(x, seq_dim):
    n = get_world_size()
    if n == 1:
        return x
    dt = x.dtype
    if get_fp32():
        x = x.float()
    size = list(x.size())
    if seq_dim == 0:
        size[seq_dim] = size[seq_dim] // n
        out = torch.empty(size, dtype=x.dtype, device=x.device)
        dist.reduce_scatter_tensor(out, x.contiguous(), group=get_group())
    else:
        parts = list(torch.split(x, x.shape[seq_dim] // n, seq_dim))
        out = torch.empty_like(parts[0])
        dist.reduce_scatter(out, parts, group=get_group())
    if get_fp32():
        out = out.to(dt)
    return out


def _gather(x, seq_dim):
    n = get_world_size()
    if n == 1:
        return x
    size = list(x.size())
    size[seq_dim] = size[seq_dim] * n
    if seq_dim == 0:
        out = torch.empty(size, dtype=x.dtype, device=x.device)
        dist.all_gather_into_tensor(out, x.contiguous(), group=get_group())
    else:
        x = x.contiguous()
        rank = dist.get_rank(group=get_group())
        parts = [torch.empty_like(x) for _ in range(n)]
        parts[rank] = x
        dist.all_gather(parts, x, group=get_group())
        out = torch.cat(parts, dim=seq_dim)
    return out


class GatherFromSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seq_dim):
        ctx.seq_dim = seq_dim
        return _gather(x, seq_dim=seq_dim)

    @staticmethod
    def backward(ctx, grad):
        seq_dim = ctx.seq_dim
        return _reduce_scatter(grad, seq_dim=seq_dim), None


def gather_from_sequence(x, seq_dim):
    return GatherFromSequence.apply(x, seq_dim)
