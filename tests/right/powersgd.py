"""Low-rank compression of gradients with error feedback, as a DDP hook's state machine."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class LowRankState:
    def __init__(self, group, rank=4):
        self.group, self.rank = group, rank
        self.errors, self.qs = {}, {}


def orthogonalize(m):
    q, _ = torch.linalg.qr(m)
    return q


def low_rank_hook(state: LowRankState, bucket):
    group = state.group if state.group is not None else dist.group.WORLD
    n = group.size()
    flat = bucket.buffer()
    side = int(flat.numel() ** 0.5) + 1
    padded = torch.zeros(side * side, device=flat.device, dtype=flat.dtype)
    padded[: flat.numel()] = flat
    i = bucket.index()
    if i in state.errors:
        padded.add_(state.errors[i])
    m = padded.view(side, side)
    if i not in state.qs:
        torch.manual_seed(i)
        state.qs[i] = orthogonalize(torch.randn(side, state.rank, device=m.device, dtype=m.dtype))
    p = m @ state.qs[i]

    def compute_q(fut):
        p = orthogonalize(fut.value()[0].div_(n))
        q = m.t() @ p
        dist.all_reduce(q, group=group)
        q.div_(n)
        state.qs[i] = q
        approx = p @ q.t()
        # what the low rank could not carry stays on this rank for the next step
        state.errors[i] = (m - approx).flatten()
        flat.copy_(approx.flatten()[: flat.numel()])
        return flat

    return dist.all_reduce(p, group=group, async_op=True).get_future().then(compute_q)


def wrap(net, device):
    model = DistributedDataParallel(net.to(device), device_ids=[device])
    model.register_comm_hook(LowRankState(None), low_rank_hook)
    return model
