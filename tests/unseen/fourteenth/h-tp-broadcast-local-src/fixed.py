# Reduces broadcast_data helpers of Megatron forks: the source of the broadcast inside a tensor-parallel group is
# given as the rank within the group, while torch.distributed expects a global rank.
import torch
import torch.distributed as dist


class ParallelContext:
    def __init__(self, tp_size):
        self.world_size = dist.get_world_size()
        self.rank = dist.get_rank()
        self.tp_size = tp_size
        self.tp_group = None
        for start in range(0, self.world_size, tp_size):
            ranks = list(range(start, start + tp_size))
            group = dist.new_group(ranks)
            if self.rank in ranks:
                self.tp_group = group

    @property
    def tp_rank(self):
        return dist.get_rank(self.tp_group)


def broadcast_batch(ctx, batch, shape, device):
    """The first rank of each tensor-parallel group has read `batch`; the others get a copy."""
    if ctx.tp_rank == 0:
        tokens = batch["tokens"].to(device).contiguous()
    else:
        tokens = torch.empty(shape, dtype=torch.long, device=device)
    dist.broadcast(tokens, src=dist.get_global_rank(ctx.tp_group, 0), group=ctx.tp_group)
    return tokens


def batches(ctx, loader, shape, device):
    iterator = iter(loader) if ctx.tp_rank == 0 else None
    while True:
        batch = next(iterator) if iterator is not None else None
        yield broadcast_batch(ctx, batch, shape, device)
