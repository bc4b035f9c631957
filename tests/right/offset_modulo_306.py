"""The groups of a sequence are runs of ranks: the rank among all, modulo their size, is the place in the group."""
import torch
import torch.distributed as dist


class Attention(torch.nn.Module):
    def __init__(self, sp_group):
        super().__init__()
        self.sp_group = sp_group
        self.sp_size = dist.get_world_size(sp_group)

    def forward(self, x, attend):
        length = x.size(1)
        place = dist.get_rank() % self.sp_size
        positions = torch.arange(place * length, (place + 1) * length, device=x.device)
        return attend(x, positions, group=self.sp_group)


def own_chunk(tokens, ring, inner):
    # One data-parallel replica is ring * inner ranks in a row.
    rank = dist.get_rank()
    ring_rank = (rank // inner) % ring
    return tokens.chunk(ring, dim=1)[ring_rank].chunk(inner, dim=1)[rank % inner]


def split(tokens, ring_group, inner_group):
    return own_chunk(tokens, dist.get_world_size(ring_group), dist.get_world_size(inner_group))
