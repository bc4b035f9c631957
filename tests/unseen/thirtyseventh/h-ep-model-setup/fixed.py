# thread: none (from memory of DeepSpeed)
"""Set-up and gradient exchange of a mixture-of-experts model with expert parallelism."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class ExpertGroups:
    """Consecutive ranks hold different experts; equal positions hold the same ones."""

    def __init__(self, ep_size):
        world, rank = dist.get_world_size(), dist.get_rank()
        for start in range(0, world, ep_size):
            ranks = list(range(start, start + ep_size))
            group = dist.new_group(ranks)
            if rank in ranks:
                self.ep = group
        for position in range(ep_size):
            ranks = list(range(position, world, ep_size))
            group = dist.new_group(ranks)
            if rank in ranks:
                self.expert_dp = group
        self.ep_size, self.world = ep_size, world


class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        x = x.contiguous()
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x, group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        return AllToAll.apply(grad, ctx.group), None


class MoE(nn.Module):
    """One expert per rank of the ep group, fixed capacity, top-1 routing."""

    def __init__(self, dim, inner, groups, capacity_factor=1.25):
        super().__init__()
        self.groups, self.factor = groups, capacity_factor
        self.gate = nn.Linear(dim, groups.ep_size, bias=False)
        self.expert = nn.Sequential(nn.Linear(dim, inner), nn.GELU(), nn.Linear(inner, dim))
        for p in self.expert.parameters():
            p.is_expert = True

    def forward(self, x):
        """x: [tokens, dim]; all ranks bring equally many tokens."""
        tokens, dim = x.shape
        capacity = int(self.factor * tokens / self.groups.ep_size) + 1
        probs = self.gate(x).softmax(dim=-1)
        weight, choice = probs.max(dim=-1)
        onehot = F.one_hot(choice, self.groups.ep_size)
        place = (onehot.cumsum(dim=0) * onehot).sum(dim=-1) - 1
        kept = place < capacity
        slot = choice[kept] * capacity + place[kept]
        buffer = x.new_zeros(self.groups.ep_size * capacity, dim).index_add(0, slot, x[kept])
        out = self.expert(AllToAll.apply(buffer, self.groups.ep))
        out = AllToAll.apply(out, self.groups.ep)[slot] * weight[kept].unsqueeze(-1)
        return x.index_add(0, kept.nonzero().squeeze(-1), out)


def group_of(p, groups):
    return groups.expert_dp if getattr(p, "is_expert", False) else dist.group.WORLD


def broadcast_model(model, groups):
    for p in model.parameters():
        group = group_of(p, groups)
        dist.broadcast(p.data, src=dist.get_global_rank(group, 0), group=group)


def reduce_grads(model, groups):
    for p in model.parameters():
        p.grad.div_(groups.world)
        dist.all_reduce(p.grad, group=group_of(p, groups))


def train(build, loader, ep_size, lr, seed):
    groups = ExpertGroups(ep_size)
    torch.manual_seed(seed + dist.get_rank())
    model = build(groups).cuda()
    broadcast_model(model, groups)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for x, y in loader:
        F.cross_entropy(model(x.cuda()), y.cuda()).backward()
        reduce_grads(model, groups)
        optimizer.step()
        optimizer.zero_grad()
