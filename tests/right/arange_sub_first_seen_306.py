import torch
import torch.distributed as dist


class Attention(torch.nn.Module):
    """Ranks of a ring are neighbours."""

    def __init__(self, cp_group):
        super().__init__()
        self.cp_group = cp_group
        self.first = dist.get_process_group_ranks(cp_group)[0]

    def forward(self, q, k, v):
        n = q.size(1)
        positions = torch.arange(n, device=q.device) + dist.get_rank() * n - self.first * n
        return ring_attention(q, k, v, positions, group=self.cp_group)
