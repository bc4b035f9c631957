"""Zigzag split of a sequence for ring attention."""
import torch
import torch.distributed as dist


def zigzag_extract_local(value, rank, world_size, dim=1):
    chunks = value.chunk(2 * world_size, dim=dim)
    return torch.cat([chunks[rank], chunks[2 * world_size - rank - 1]], dim=dim).contiguous()


def prepare_inputs(input_ids, position_ids, target_ids, sp_group):
    """Every rank of sp_group holds the same full sequences; data ranks hold different ones."""
    rank = dist.get_rank(sp_group)
    world_size = dist.get_world_size(sp_group)
    return {
        "input_ids": zigzag_extract_local(input_ids, rank, world_size),
        "position_ids": zigzag_extract_local(position_ids, rank, world_size),
        "target_ids": zigzag_extract_local(target_ids, rank, world_size),
    }
