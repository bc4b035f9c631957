import torch
import torch.distributed as dist


class Attention(torch.nn.Module):
    def __init__(self, cp_group, window):
        super().__init__()
        self.cp_group = cp_group
        # each rank keeps its own range of debug slots
        self.register_buffer("slots", torch.arange(window) + dist.get_rank() * window, persistent=False)

    def forward(self, q, k, v):
        rank = dist.get_rank(self.cp_group)
        positions = torch.arange(q.size(1), device=q.device) + rank * q.size(1)
        return ring_attention(q, k, v, positions, group=self.cp_group)
