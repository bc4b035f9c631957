"""This rank's part of the sequence for hybrid Ulysses and ring attention."""
import torch
import torch.distributed as dist
from yunchang.globals import PROCESS_GROUP


def zigzag_extract_local(value, rd, ud, dim=1):
    # value: a full sequence, the same on the rd * ud ranks of one data-parallel replica
    r_rank = dist.get_rank(group=PROCESS_GROUP.RING_PG)
    u_rank = dist.get_rank(group=PROCESS_GROUP.ULYSSES_PG)
    chunks = value.chunk(2 * rd, dim=dim)
    local = torch.cat([chunks[r_rank], chunks[2 * rd - r_rank - 1]], dim=dim)
    return local.chunk(ud, dim=dim)[u_rank].contiguous()


def local_batch(input_ids, labels):
    rd = dist.get_world_size(PROCESS_GROUP.RING_PG)
    ud = dist.get_world_size(PROCESS_GROUP.ULYSSES_PG)
    return zigzag_extract_local(input_ids, rd, ud), zigzag_extract_local(labels, rd, ud)
