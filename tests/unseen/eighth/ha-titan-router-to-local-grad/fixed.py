"""Top-k router: gate weight sharded as a DTensor, tokens sharded along the sequence."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor


class TokenChoiceTopKRouter(nn.Module):
    def __init__(self, dim, num_experts, top_k):
        super().__init__()
        self.gate = nn.Linear(dim, num_experts, bias=False)
        self.top_k = top_k

    def forward(self, x: DTensor):
        # x: [batch, seq, dim], Shard(1) over the tp mesh
        tokens = x.to_local().flatten(0, 1)
        weight = self.gate.weight.redistribute(placements=[Replicate()])
        scores = F.linear(tokens.float(), weight.to_local(grad_placements=[Partial()]).float())
        probs = torch.softmax(scores, dim=-1)
        top_scores, top_idx = torch.topk(probs, self.top_k, dim=-1)
        return top_scores / top_scores.sum(dim=-1, keepdim=True), top_idx


def parallelize_router(router, tp_mesh):
    sharded = distribute_tensor(router.gate.weight, tp_mesh, [Shard(0)])
    router.gate.weight = nn.Parameter(sharded)
    return router
