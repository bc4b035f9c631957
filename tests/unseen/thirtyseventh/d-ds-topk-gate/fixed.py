# thread: none (from memory of DeepSpeed)
"""Mixture-of-experts layer; ranks of a group bring equally many tokens."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
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


def capacity_of(counts, tokens, num_experts, factor, minimum, drop_tokens, group):
    if drop_tokens:
        capacity = -(-tokens * factor // num_experts)
        return max(int(capacity), minimum)
    capacity = counts.max()
    dist.all_reduce(capacity, op=dist.ReduceOp.MAX, group=group)
    return max(int(capacity.item()), minimum)


def top1_gating(logits, factor, minimum, drop_tokens, group):
    """Combine weights and dispatch mask, both [tokens, experts, capacity]."""
    tokens, num_experts = logits.shape
    gates = logits.float().softmax(dim=1)
    mask = F.one_hot(gates.argmax(dim=1), num_experts)
    counts = mask.sum(dim=0)
    capacity = capacity_of(counts, tokens, num_experts, factor, minimum, drop_tokens, group)

    me, ce = gates.mean(dim=0), mask.float().mean(dim=0)
    aux_loss = (me * ce).sum() * num_experts

    location = mask.cumsum(dim=0) - 1
    mask = mask * (location < capacity)
    place = (location * mask).sum(dim=1)
    weight = gates * mask
    onehot = F.one_hot(place, capacity).to(gates.dtype)
    combine = weight.unsqueeze(-1) * onehot.unsqueeze(1)
    return aux_loss, combine, combine.bool()


class MOELayer(nn.Module):
    def __init__(self, dim, inner, num_experts, ep_group, drop_tokens=True):
        super().__init__()
        self.group, self.ep_size = ep_group, dist.get_world_size(ep_group)
        self.num_local = num_experts // self.ep_size
        self.drop_tokens = drop_tokens
        self.wg = nn.Linear(dim, num_experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, inner), nn.GELU(), nn.Linear(inner, dim))
            for _ in range(self.num_local)
        )
        for p in self.experts.parameters():
            p.allreduce = False

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        self.aux_loss, combine, mask = top1_gating(
            self.wg(x), 1.0, 4, self.drop_tokens, self.group
        )
        sent = torch.einsum("sec,sm->ecm", mask.to(x.dtype), x)
        received = AllToAll.apply(self.group, sent)
        received = received.view(self.ep_size, self.num_local, -1, shape[-1])
        outs = [expert(received[:, i]) for i, expert in enumerate(self.experts)]
        back = torch.stack(outs, dim=1).flatten(0, 1)
        back = AllToAll.apply(self.group, back)
        return torch.einsum("sec,ecm->sm", combine.to(x.dtype), back).view(shape)


def reduce_gradients(model, dp_group, expert_dp_group):
    size = dist.get_world_size(dp_group)
    for p in model.parameters():
        p.grad.div_(size)
        dist.all_reduce(p.grad, group=dp_group if getattr(p, "allreduce", True) else expert_dp_group)
