"""Expert-exchange and gradient-sync groups for FastMoE on a part of the ranks.

Source: https://github.com/laekov/fastmoe/issues/106
Wrong: every rank calls new_group with the ranks of its own groups only. All ranks of the job must
make the same sequence of new_group calls; with more than one group the job hangs or pairs up
communicators of different rank lists.
Repair: create all the groups on all ranks and keep the own ones.
"""
import torch.distributed as dist
from fmoe import FMoETransformerMLP
from fmoe.distributed import DistributedGroupedDataParallel


def build_groups(group_world_size):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    num_groups = world_size // group_world_size
    group_rank, inner_rank = divmod(rank, group_world_size)

    def comm_ranks(j):
        return [j * group_world_size + i for i in range(group_world_size)]

    def sync_ranks(i):
        return [j * group_world_size + i for j in range(num_groups)]

    for j in range(num_groups):
        group = dist.new_group(comm_ranks(j))
        if j == group_rank:
            moe_comm_group = group
    for i in range(group_world_size):
        group = dist.new_group(sync_ranks(i))
        if i == inner_rank:
            moe_sync_group = group
    return moe_comm_group, moe_sync_group


def build_model(args, group_world_size):
    moe_comm_group, moe_sync_group = build_groups(group_world_size)
    mlp = FMoETransformerMLP(
        num_expert=args.num_experts, d_model=args.hidden_size, d_hidden=args.hidden_hidden_size,
        world_size=group_world_size, moe_group=moe_comm_group,
    )
    return DistributedGroupedDataParallel(mlp, moe_sync_group=moe_sync_group)
