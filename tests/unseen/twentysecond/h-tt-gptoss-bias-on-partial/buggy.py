"""Down projection of tensor-parallel experts with bias (pytorch/torchtitan#2106)."""
import torch
from torch.distributed.tensor import DTensor, Partial, Replicate


class GptOssExperts(torch.nn.Module):
    def __init__(self, w1_shard, w2_shard, b2, tp_mesh):
        super().__init__()
        self.w1 = torch.nn.Parameter(w1_shard)  # [experts, dim, hidden/tp]
        self.w2 = torch.nn.Parameter(w2_shard)  # [experts, hidden/tp, dim]
        self.b2 = torch.nn.Parameter(b2)  # [experts, 1, dim], the same on every TP rank
        self.tp_mesh = tp_mesh

    def forward(self, x: DTensor):
        # x: [experts, tokens, dim], Replicate on tp
        x = x.to_local(grad_placements=[Partial()])
        h = torch.nn.functional.silu(torch.bmm(x, self.w1))
        out = torch.bmm(h, self.w2)
        out = out + self.b2  # BUG: full bias on a partial sum, counted once per TP rank
        out = DTensor.from_local(out, self.tp_mesh, [Partial()], run_check=False)
        return out.redistribute(placements=[Replicate()]).to_local()
