"""MoE block under TP: expert weights are split inside each expert, so the block's output is a term of a sum."""
# pytorch/torchtitan, MoE with TP: the output of the block is Partial, `Replicate` keeps each rank's own term.
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor


class GroupedExperts(nn.Module):
    def __init__(self, dim, hidden, num_experts, tp_mesh: DeviceMesh):
        super().__init__()
        self.tp_mesh = tp_mesh
        self.w1 = nn.Parameter(distribute_tensor(torch.empty(num_experts, hidden, dim), tp_mesh, [Shard(1)]))
        self.w2 = nn.Parameter(distribute_tensor(torch.empty(num_experts, dim, hidden), tp_mesh, [Shard(2)]))

    def forward(self, x, num_tokens_per_expert):
        w1, w2 = self.w1.to_local(), self.w2.to_local()
        out = []
        for i, part in enumerate(torch.split(x, num_tokens_per_expert.tolist())):
            h = F.silu(part @ w1[i].t())
            out.append(h @ w2[i].t())
        return torch.cat(out)


class MoE(nn.Module):
    def __init__(self, dim, hidden, num_experts, tp_mesh):
        super().__init__()
        self.tp_mesh = tp_mesh
        self.experts = GroupedExperts(dim, hidden, num_experts, tp_mesh)

    def forward(self, x: DTensor, order, num_tokens_per_expert):
        # x: DTensor [s, d], Shard(0) on tp; order is the same on all ranks
        x = x.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()])
        routed = self.experts(x[order], num_tokens_per_expert)
        out = torch.zeros_like(x).index_add(0, order, routed)
        out = DTensor.from_local(out, self.tp_mesh, [Replicate()], run_check=False)  # BUG: each rank has its slice of `hidden`
        return out.redistribute(placements=[Shard(0)])


class Block(nn.Module):
    def __init__(self, dim, hidden, num_experts, tp_mesh):
        super().__init__()
        self.moe = MoE(dim, hidden, num_experts, tp_mesh)

    def forward(self, x, order, counts):
        return x + self.moe(x, order, counts)
