"""Experts without all-to-all: gather all tokens, run the local experts (NVIDIA-NeMo/Automodel#1260)."""
import torch
from torch.distributed.tensor import DTensor, Partial, Shard


class GroupedExperts(torch.nn.Module):
    def __init__(self, experts, first_expert, ep_mesh):
        super().__init__()
        self.experts = torch.nn.ModuleList(experts)  # this rank's experts
        self.first_expert, self.ep_mesh = first_expert, ep_mesh

    def forward(self, x, indices):
        # x, indices: the tokens of this expert-parallel rank
        x = DTensor.from_local(x, self.ep_mesh, [Shard(0)], run_check=False)
        x = x.full_tensor()  # BUG: each rank runs other experts, the backward only slices
        indices = DTensor.from_local(indices, self.ep_mesh, [Shard(0)], run_check=False).full_tensor()
        y = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            tok = torch.where(indices == self.first_expert + i)[0]
            y = y.index_add(0, tok, expert(x[tok]))
        y = DTensor.from_local(y, self.ep_mesh, [Partial()], run_check=False)
        return y.redistribute(placements=[Shard(0)]).to_local()
