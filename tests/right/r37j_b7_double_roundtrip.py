import torch
import torch.distributed as dist


def _roll(x, by, group=None):
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    out = torch.empty_like(x)
    for r in dist.batch_isend_irecv([
        dist.P2POp(dist.isend, x.contiguous(), (rank + by) % world),
        dist.P2POp(dist.irecv, out, (rank - by) % world),
    ]):
        r.wait()
    return out


class ThereAndBack(torch.autograd.Function):
    """Send the rows on, let the neighbour round them to bf16, take them back (straight-through)."""

    @staticmethod
    def forward(ctx, x):
        away = _roll(x, 1).bfloat16().float()
        return _roll(away, -1)

    @staticmethod
    def backward(ctx, grad):
        return grad
