"""One sequence over all ranks: their group is made of all of them."""
import torch
import torch.distributed as dist


class Attention(torch.nn.Module):
    def __init__(self, sp_group):
        super().__init__()
        self.sp_group = sp_group

    def forward(self, x, attend):
        length = x.size(1)
        positions = torch.arange(length, device=x.device) + dist.get_rank() * length
        return attend(x, positions, group=self.sp_group)


def build():
    ranks = list(range(dist.get_world_size()))
    return Attention(dist.new_group(ranks))
