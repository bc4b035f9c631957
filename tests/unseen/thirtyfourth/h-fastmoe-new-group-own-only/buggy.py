# laekov/fastmoe, issue 106 - https://github.com/laekov/fastmoe/issues/106 (read)
# dist.new_group must be called by all processes for every group, in the same order. Here each rank only
# creates the expert-parallel group it belongs to: ranks disagree on the call and the program hangs.
"""Expert-parallel and synchronisation groups for a MoE model."""
import torch.distributed as dist
import torch.nn as nn
from fmoe import FMoETransformerMLP
from fmoe.distributed import DistributedGroupedDataParallel


def build_groups(group_world_size):
    rank, group_size = dist.get_rank(), dist.get_world_size() // group_world_size
    group_rank, inner_group_rank = rank // group_world_size, rank % group_world_size

    # ranks of one group hold different experts
    ranks = [i + group_world_size * group_rank for i in range(group_world_size)]
    moe_comm_group = dist.new_group(ranks)  # BUG: other groups are not created on this rank

    # ranks that hold the same experts
    moe_sync_group = None
    for j in range(group_world_size):
        group = dist.new_group([j + group_world_size * i for i in range(group_size)])
        if j == inner_group_rank:
            moe_sync_group = group
    return moe_comm_group, moe_sync_group


def build_model(d_model, d_hidden, num_expert, group_world_size):
    moe_comm_group, moe_sync_group = build_groups(group_world_size)
    mlp = FMoETransformerMLP(
        num_expert=num_expert, d_model=d_model, d_hidden=d_hidden, activation=nn.GELU(),
        world_size=group_world_size, moe_group=moe_comm_group, expert_dp_comm="dp",
    )
    return DistributedGroupedDataParallel(mlp, dp_group=moe_sync_group)
