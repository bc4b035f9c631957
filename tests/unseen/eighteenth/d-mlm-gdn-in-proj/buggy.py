"""Gated delta net: one packed, column-parallel input projection and its loading.

Source: NVIDIA/Megatron-LM, pull request #1989 (comment on tp > 1). The full weight is packed as
[Q | K | V | Z]. Cutting it into equal runs of rows gives a rank rows of other components than
the ones its forward reads at these places; each component must be cut for itself.
"""
import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    reduce_from_tensor_model_parallel_region,
)


def shard_in_proj(full_weight, sizes, tp_rank, tp_size):
    """full_weight: [sum(sizes), hidden] with the rows of q, k, v and z one after the other."""
    return full_weight.chunk(tp_size, dim=0)[tp_rank].contiguous()  # BUG


class GatedDeltaNet(torch.nn.Module):
    def __init__(self, hidden, qk_dim, v_dim, head_dim, kernel):
        super().__init__()
        self.tp_size = parallel_state.get_tensor_model_parallel_world_size()
        self.tp_rank = parallel_state.get_tensor_model_parallel_rank()
        self.sizes = [qk_dim, qk_dim, v_dim, v_dim]
        self.local_sizes = [n // self.tp_size for n in self.sizes]
        self.head_dim, self.kernel = head_dim, kernel
        self.in_proj = torch.nn.Parameter(torch.empty(sum(self.local_sizes), hidden))
        self.out_proj = torch.nn.Parameter(torch.empty(hidden, v_dim // self.tp_size))

    @torch.no_grad()
    def load_full(self, in_proj, out_proj):
        self.in_proj.copy_(shard_in_proj(in_proj, self.sizes, self.tp_rank, self.tp_size))
        self.out_proj.copy_(out_proj.chunk(self.tp_size, dim=1)[self.tp_rank])

    def forward(self, x):
        # x: [b, s, hidden], replicated
        x = copy_to_tensor_model_parallel_region(x)
        q, k, v, z = F.linear(x, self.in_proj).split(self.local_sizes, dim=-1)
        q, k, v = (t.unflatten(-1, (-1, self.head_dim)) for t in (q, k, v))
        y = self.kernel(q, k, v).flatten(2) * torch.sigmoid(z)
        return reduce_from_tensor_model_parallel_region(F.linear(y, self.out_proj))
