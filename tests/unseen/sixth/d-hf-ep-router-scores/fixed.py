"""Expert parallelism: every rank applies its own experts to all tokens."""
import torch
import torch.nn.functional as F
import torch.distributed as dist
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    reduce_from_tensor_model_parallel_region,
)


class SparseMoeBlock(torch.nn.Module):
    def __init__(self, hidden, num_experts, gate_up_shard, down_shard, ep_group, top_k=2):
        super().__init__()
        self.gate = torch.nn.Linear(hidden, num_experts, bias=False)  # replicated
        self.gate_up = torch.nn.Parameter(gate_up_shard)  # experts / ep
        self.down = torch.nn.Parameter(down_shard)
        self.ep_group, self.top_k = ep_group, top_k
        self.num_local = gate_up_shard.size(0)

    def forward(self, x):
        # x: the same tokens on all ranks of ep_group
        scores, index = torch.topk(self.gate(x).softmax(-1), self.top_k, dim=-1)
        first = dist.get_rank(self.ep_group) * self.num_local
        x = copy_to_tensor_model_parallel_region(x, group=self.ep_group)
        scores = copy_to_tensor_model_parallel_region(scores, group=self.ep_group)
        out = torch.zeros_like(x)
        for e in range(self.num_local):
            weight = (scores * (index == first + e)).sum(-1, keepdim=True)
            h = F.silu(x @ self.gate_up[e])
            out = out + (h @ self.down[e]) * weight
        return reduce_from_tensor_model_parallel_region(out, group=self.ep_group)
