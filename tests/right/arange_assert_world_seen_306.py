import torch
import torch.distributed as dist


def check_layout(cp_group):
    if dist.get_process_group_ranks(cp_group) != list(range(dist.get_world_size())):
        raise ValueError("context parallelism spans all ranks here")


class Attention(torch.nn.Module):
    def __init__(self, cp_group):
        super().__init__()
        check_layout(cp_group)
        self.cp_group = cp_group

    def forward(self, q, k, v):
        length = q.size(1)
        positions = torch.arange(length, device=q.device) + dist.get_rank() * length
        return ring_attention(q, k, v, positions, group=self.cp_group)
