"""Groups of a mixture of experts on top of data parallelism."""
import torch.distributed as dist


class MoEGroups:
    def __init__(self, moe_size):
        world, rank = dist.get_world_size(), dist.get_rank()
        assert world % moe_size == 0
        self.moe_comm_group = self.moe_sync_group = None
        for j in range(world // moe_size):
            ranks = list(range(j * moe_size, (j + 1) * moe_size))
            if rank in ranks:
                self.moe_comm_group = dist.new_group(ranks)  # BUG: all ranks must create all groups
        for j in range(moe_size):
            ranks = list(range(j, world, moe_size))
            group = dist.new_group(ranks)
            if rank in ranks:
                self.moe_sync_group = group
