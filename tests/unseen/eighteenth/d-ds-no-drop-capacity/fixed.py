"""Top-1 gating without dropped tokens, and the exchange between the expert ranks.

Source: deepspeed.moe.sharded_moe (from memory; an early state of drop_tokens=False). Each rank
takes the fullest of its experts as the capacity. The buffers [experts, capacity, hidden] of the
all-to-all then have different sizes on the ranks: wrong rows arrive, or the exchange hangs.
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from deepspeed.moe.sharded_moe import _AllToAll


def top1gating(logits, ep_group):
    """logits: [tokens, experts]; returns the combine weights [tokens, experts, capacity]."""
    gates = F.softmax(logits, dim=1)
    num_experts = gates.size(1)
    mask = F.one_hot(gates.argmax(dim=1), num_experts)

    exp_counts = mask.sum(dim=0)
    capacity = torch.max(exp_counts)
    dist.all_reduce(capacity, op=dist.ReduceOp.MAX, group=ep_group)

    me, ce = gates.mean(dim=0), mask.float().mean(dim=0)
    l_aux = torch.sum(me * ce) * num_experts

    locations = torch.sum((torch.cumsum(mask, dim=0) - 1) * mask, dim=1)
    gates = gates * mask
    slots = F.one_hot(locations, int(capacity)).to(gates.dtype)
    combine = torch.einsum("se,sc->sec", gates, slots)
    return l_aux, combine


class MOELayer(torch.nn.Module):
    def __init__(self, hidden, num_experts, experts, ep_group):
        super().__init__()
        self.wg = torch.nn.Linear(hidden, num_experts, bias=False)
        self.experts = torch.nn.ModuleList(experts)
        self.ep_group, self.ep_size = ep_group, dist.get_world_size(ep_group)
        self.num_local_experts = num_experts // self.ep_size

    def forward(self, x):
        hidden = x.size(-1)
        tokens = x.reshape(-1, hidden)
        self.l_aux, combine = top1gating(self.wg(tokens.float()), self.ep_group)
        dispatch = combine.bool().to(x.dtype)
        dispatched = torch.einsum("sec,sm->ecm", dispatch, tokens)
        dispatched = _AllToAll.apply(self.ep_group, dispatched)
        dispatched = dispatched.reshape(self.ep_size, self.num_local_experts, -1, hidden)
        chunks = dispatched.chunk(self.num_local_experts, dim=1)
        outputs = [e(c.squeeze(1)) for e, c in zip(self.experts, chunks)]
        outputs = _AllToAll.apply(self.ep_group, torch.stack(outputs, dim=1).flatten(0, 1))
        y = torch.einsum("sec,ecm->sm", combine.to(x.dtype), outputs)
        return y.view_as(x)
