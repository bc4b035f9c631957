import torch
import torch.distributed as dist


def count_all(counts, group=None):
    dist.all_reduce(counts, group=group)
    return counts


class Balance:
    def update(self, counts, group):
        total = count_all(counts)
        size = dist.get_world_size(group)
        own = total.reshape(size, -1)
        self.bias = torch.sign(total.float().mean() - own[dist.get_rank(group)])
