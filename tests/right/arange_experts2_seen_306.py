import torch
import torch.distributed as dist


class Block(torch.nn.Module):
    """Attention is over the sequence-parallel ranks, experts are spread over all ranks."""

    def __init__(self, attention, experts, sp_group, local_experts):
        super().__init__()
        self.attention, self.experts = attention, experts
        self.sp_group, self.local_experts = sp_group, local_experts

    def forward(self, x, scores):
        x = self.attention(x, group=self.sp_group)
        own = torch.arange(self.local_experts, device=x.device) + dist.get_rank() * self.local_experts
        return self.experts(x, scores, own, group=dist.group.WORLD)
