"""LoRA on grouped experts that every tensor-parallel rank keeps whole (EP = ETP = 1)."""
# Source: ISEEKYAN/Megatron-LM pull request 131 (confirmed from the thread; code from memory)
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


class _AllReduceSumGrad(torch.autograd.Function):
    """Identity whose backward sums over a group."""

    @staticmethod
    def forward(ctx, weight, group):
        ctx.group = group
        return weight.view_as(weight)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class SharedGroupedLora(nn.Module):
    """One pair of factors for all local experts."""

    def __init__(self, in_features, out_features, rank, alpha, tp_group):
        super().__init__()
        self.lora_a = nn.Parameter(torch.empty(rank, in_features))
        self.lora_b = nn.Parameter(torch.zeros(out_features, rank))
        self.scale, self.tp_group = alpha / rank, tp_group

    def forward(self, x):
        return F.linear(F.linear(x, self.lora_a), self.lora_b) * self.scale  # BUG


class GroupedExperts(nn.Module):
    def __init__(self, config, tp_group):
        super().__init__()
        shape = (config.num_experts, config.hidden_size, config.ffn_size)
        self.fc1 = nn.Parameter(torch.empty(shape), requires_grad=False)
        self.fc2 = nn.Parameter(torch.empty(shape[0], shape[2], shape[1]), requires_grad=False)
        self.adapter1 = SharedGroupedLora(config.hidden_size, config.ffn_size, 8, 16, tp_group)
        self.adapter2 = SharedGroupedLora(config.ffn_size, config.hidden_size, 8, 16, tp_group)

    def forward(self, x, expert):
        # x: [s*b/tp, h], this rank's part of the sequence
        out = torch.zeros_like(x)
        for e in range(self.fc1.size(0)):
            rows = (expert == e).nonzero().squeeze(-1)
            h = F.gelu(x[rows] @ self.fc1[e] + self.adapter1(x[rows]))
            out = out.index_add(0, rows, h @ self.fc2[e] + self.adapter2(h))
        return out


def wrap(model, dp_group, local_rank):
    return DistributedDataParallel(model, device_ids=[local_rank], process_group=dp_group)
