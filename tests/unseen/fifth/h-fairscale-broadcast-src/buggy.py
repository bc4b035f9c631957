"""Make the replicas of one data-parallel group start from the same weights."""
import torch
import torch.distributed as dist


class ShardedDataParallel(torch.nn.Module):
    def __init__(self, module, world_size, model_parallel_size):
        super().__init__()
        self.module = module
        self.process_group = None
        for first in range(model_parallel_size):
            ranks = list(range(first, world_size, model_parallel_size))
            group = dist.new_group(ranks)
            if dist.get_rank() in ranks:
                self.process_group = group
        self.sync_params()

    def sync_params(self):
        for p in self.module.state_dict().values():
            dist.broadcast(p, src=0, group=self.process_group)  # BUG: rank 0 is in one of the groups only
