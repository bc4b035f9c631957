# Reduced from a user's FastMoE set-up (laekov/fastmoe issue 106, read).
# Experts are spread over `expert_size` ranks, experts with the same place in the groups are replicas.
# torch.distributed.new_group is a collective of the whole job, also for ranks outside the group.
# What happens: the ranks enter new_group with different lists, the job hangs or mixes up groups.
import torch
import torch.distributed as dist
from fmoe import FMoETransformerMLP
from fmoe.distributed import DistributedGroupedDataParallel


def create_moe_groups(expert_size):
    world_size, rank = dist.get_world_size(), dist.get_rank()
    replica_size = world_size // expert_size
    group_rank, inner_rank = divmod(rank, expert_size)
    moe_comm_ranks = [group_rank * expert_size + i for i in range(expert_size)]
    moe_comm_group = dist.new_group(moe_comm_ranks)  # BUG
    moe_sync_ranks = [inner_rank + expert_size * j for j in range(replica_size)]
    moe_sync_group = dist.new_group(moe_sync_ranks)
    return moe_comm_group, moe_sync_group


class MoEModel(torch.nn.Module):
    def __init__(self, d_model, d_hidden, num_expert, expert_size, moe_comm_group):
        super().__init__()
        self.inp = torch.nn.Linear(d_model, d_model)
        self.mlp = FMoETransformerMLP(
            num_expert=num_expert, d_model=d_model, d_hidden=d_hidden,
            world_size=expert_size, moe_group=moe_comm_group, expert_dp_comm="moe_sync",
        )

    def forward(self, x):
        return self.mlp(torch.relu(self.inp(x)))


def build(d_model, d_hidden, num_expert, expert_size):
    moe_comm_group, moe_sync_group = create_moe_groups(expert_size)
    model = MoEModel(d_model, d_hidden, num_expert, expert_size, moe_comm_group).cuda()
    # experts are reduced over moe_sync_group, all other parameters over the world
    return DistributedGroupedDataParallel(model, moe_sync_group=moe_sync_group, moe_group=moe_comm_group)
