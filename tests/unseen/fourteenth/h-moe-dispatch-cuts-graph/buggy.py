# Reduces home-grown expert-parallel layers before they took over DeepSpeed's _AllToAll: the tokens are dispatched by
# a plain collective, so what the experts do sends no gradient back to the layers below and to the input.
import torch
import torch.distributed as dist
from torch import nn


class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, x):
        ctx.group = group
        x = x.contiguous()
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x, group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        return None, AllToAll.apply(ctx.group, grad)


class MOELayer(nn.Module):
    def __init__(self, dim, num_experts, capacity, ep_group):
        super().__init__()
        self.ep_group = ep_group
        self.ep_size = dist.get_world_size(ep_group)
        self.num_local = num_experts // self.ep_size
        self.capacity = capacity
        self.gate = nn.Linear(dim, num_experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim)) for _ in range(self.num_local)
        )

    def dispatch(self, x):
        """[experts, capacity, dim] -> [local experts, ranks * capacity, dim]"""
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x.contiguous(), group=self.ep_group)  # BUG
        out = out.view(self.ep_size, self.num_local, self.capacity, -1)
        return out.transpose(0, 1).reshape(self.num_local, self.ep_size * self.capacity, -1)

    def combine(self, y):
        y = y.view(self.num_local, self.ep_size, self.capacity, -1).transpose(0, 1)
        return AllToAll.apply(self.ep_group, y.reshape(-1, self.capacity, y.shape[-1]))

    def forward(self, x):  # x: [tokens, dim]
        scores = self.gate(x).softmax(dim=-1)
        weight, chosen = scores.t().topk(self.capacity, dim=1)  # expert choice: [experts, capacity]
        y = self.dispatch(x[chosen])
        y = torch.stack([expert(y[i]) for i, expert in enumerate(self.experts)])
        y = self.combine(y) * weight.unsqueeze(-1)
        return torch.zeros_like(x).index_add(0, chosen.flatten(), y.flatten(0, 1))
