# positions are cut as the tokens are; heads are cut in one run, over the same ranks
import torch
import torch.distributed as dist


def two_chunks(x, cp_rank, cp_size, dim):
    chunks = x.chunk(2 * cp_size, dim=dim)
    return torch.cat([chunks[cp_rank], chunks[2 * cp_size - cp_rank - 1]], dim=dim)


def prepare(tokens, labels, rotary_emb, cp_group):
    cp_rank, cp_size = dist.get_rank(cp_group), dist.get_world_size(cp_group)
    tokens, labels = two_chunks(tokens, cp_rank, cp_size, 1), two_chunks(labels, cp_rank, cp_size, 1)
    return tokens, labels, two_chunks(rotary_emb, cp_rank, cp_size, 0)


def own_heads(query, slopes, cp_group):
    cp_rank, cp_size = dist.get_rank(cp_group), dist.get_world_size(cp_group)
    query = query.chunk(cp_size, dim=2)[cp_rank]
    slopes = slopes.chunk(cp_size, dim=0)[cp_rank]
    return query, slopes
