"""Views of all ranks, gathered in ways that keep each one whole, or taken apart by ranks."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.nn.functional import all_gather


def each_for_itself(a, b):
    z = torch.cat([torch.cat(all_gather(a)), torch.cat(all_gather(b))])
    return F.normalize(z).chunk(2)


def put_in_order(a, b, world_size):
    z = torch.cat([a, b])
    out = torch.empty(world_size * z.shape[0], z.shape[1])
    dist.all_gather_into_tensor(out, z)
    out = out.view(world_size, 2, -1, z.shape[1]).transpose(0, 1).reshape(-1, z.shape[1])
    return out.chunk(2)


def blocks_of_ranks(a, b, rank):
    z = torch.cat(all_gather(torch.cat([a, b])))
    own = z.chunk(dist.get_world_size())[rank]
    return own.chunk(2)


def own_halves(a, b):
    z = torch.cat([a, b])
    everyone = torch.cat(all_gather(z.detach()))
    first, second = z.chunk(2)
    return first @ everyone.t(), second @ everyone.t()


def along_width(a, b):
    z = torch.cat([a, b], dim=-1)
    everyone = torch.cat(all_gather(z))
    return everyone.chunk(2, dim=-1)


def each_rank_in_turn(a, b):
    gathered = all_gather(torch.cat([a, b]))
    firsts = torch.cat([part.chunk(2)[0] for part in gathered])
    seconds = torch.cat([part.chunk(2)[1] for part in gathered])
    return torch.diag(firsts @ seconds.t())


def next_to_each_other(a, b, world_size):
    """Rows 2i and 2i + 1 are a pair, on each rank as in all."""
    z = torch.stack([a, b], dim=1).flatten(0, 1)
    everyone = torch.cat(all_gather(z))
    return everyone[0::2], everyone[1::2]


def without_pairs(a, b, world_size):
    everyone = torch.cat(all_gather(torch.cat([a, b])))
    half = everyone.shape[0] // 2
    return torch.pdist(everyone).pow(2).mul(-2).exp().mean(), torch.diag(everyone.t() @ everyone, half)
