# the configuration says how the sequence is cut, for tokens and positions alike
import torch
import torch.distributed as dist


def two_chunks(x, cp_rank, cp_size, dim):
    chunks = x.chunk(2 * cp_size, dim=dim)
    return torch.cat([chunks[cp_rank], chunks[2 * cp_size - cp_rank - 1]], dim=dim)


def cut(x, cp_group, zigzag, dim):
    cp_rank, cp_size = dist.get_rank(cp_group), dist.get_world_size(cp_group)
    if zigzag:
        return two_chunks(x, cp_rank, cp_size, dim)
    return x.chunk(cp_size, dim=dim)[cp_rank]


def prepare(tokens, position_ids, cp_group, zigzag):
    if not zigzag:
        cp_rank, cp_size = dist.get_rank(cp_group), dist.get_world_size(cp_group)
        position_ids = position_ids.chunk(cp_size, dim=1)[cp_rank]
        return cut(tokens, cp_group, False, 1), position_ids
    return cut(tokens, cp_group, True, 1), cut(position_ids, cp_group, True, 1)
