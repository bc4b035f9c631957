# what is put into the order of the chunks first may be cut in runs
import torch
import torch.distributed as dist


def two_chunks(x, cp_rank, cp_size, dim=1):
    chunks = x.chunk(2 * cp_size, dim=dim)
    return torch.cat([chunks[cp_rank], chunks[2 * cp_size - cp_rank - 1]], dim=dim)


def reorder(x, cp_size, dim):
    chunks = x.chunk(2 * cp_size, dim=dim)
    order = [i for rank in range(cp_size) for i in (rank, 2 * cp_size - 1 - rank)]
    return torch.cat([chunks[i] for i in order], dim=dim)


def prepare(tokens, rotary_emb, cp_group):
    cp_rank, cp_size = dist.get_rank(cp_group), dist.get_world_size(cp_group)
    tokens = two_chunks(tokens, cp_rank, cp_size)
    ordered_emb = reorder(rotary_emb, cp_size, 0)
    return tokens, ordered_emb.chunk(cp_size, dim=0)[cp_rank]
