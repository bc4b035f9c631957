"""Sequence-parallel groups for ring attention.

huggingface/trl 5c2d612404ac, trl/models/ring_attn.py
"""
import torch
import torch.distributed as dist
from ring_flash_attn import substitute_hf_flash_attn, update_ring_flash_attn_params

RING_ATTN_GROUP = None


def set_ring_attn_group(group):
    global RING_ATTN_GROUP
    RING_ATTN_GROUP = group


def register_ring_attn(world_size: int, rank: int, sequence_parallel_degree: int, heads_k_stride: int = 1):
    """Create the ring attention groups and patch flash attention with this rank's group."""
    if world_size % sequence_parallel_degree != 0:
        raise ValueError("world_size must be divisible by sequence_parallel_degree")
    num_groups = world_size // sequence_parallel_degree
    local_group = None

    # Create sequence parallel groups
    for group_idx in range(num_groups):
        ring_attn_ranks = list(range(group_idx * sequence_parallel_degree, (group_idx + 1) * sequence_parallel_degree))
        # NCCL backend is assumed for GPU communication
        group = dist.new_group(ranks=ring_attn_ranks, backend="nccl")

        # Assign the group to the current rank if it belongs to this group
        if rank in ring_attn_ranks:
            local_group = group

    if local_group is None:
        raise RuntimeError(f"Rank {rank} was not assigned to any ring attention group.")

    set_ring_attn_group(local_group)
    substitute_hf_flash_attn(process_group=local_group, heads_k_stride=heads_k_stride)

    return local_group


class SFTTrainer:
    def __init__(self, args):
        self.ring_group = register_ring_attn(dist.get_world_size(), dist.get_rank(), args.sequence_parallel_size)

    def num_tokens(self, labels):
        n = (labels != -100).sum()
        dist.all_reduce(n, group=self.ring_group)
        return n
