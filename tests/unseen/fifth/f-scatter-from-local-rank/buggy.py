"""Each tensor-parallel rank takes its rows of a checkpoint tensor."""
import os

import torch
import torch.distributed as dist


def load_shard(full, tp_group):
    world = dist.get_world_size(tp_group)
    rank = int(os.environ["LOCAL_RANK"])  # BUG: the rank on the node, not in the group
    rows = full.size(0) // world
    return full[rank * rows:(rank + 1) * rows].clone()
