# axonn-ai/yalis, pull request 36 - https://github.com/axonn-ai/yalis/pull/36 (read: title and description)
# In this engine activations are sharded along the hidden dimension. RMSNorm takes the mean square of its own
# slice; it has to be reduced over the tensor-parallel group to be that of the whole hidden vector.
"""RMSNorm on activations sharded along the hidden dimension (tensor-parallel inference)."""
import torch
import torch.distributed as dist
from axonn import axonn as ax


class RMSNorm(torch.nn.Module):
    def __init__(self, size, dim=-1, eps=1e-6, add_unit_offset=False):
        super().__init__()
        self.group = ax.comm_handle.inner_intra_layer_parallel_group
        # every rank holds the same number of hidden units
        self.weight = torch.nn.Parameter(torch.ones(size // dist.get_world_size(self.group)))
        self.dim, self.eps, self.add_unit_offset = dim, eps, add_unit_offset

    @torch.no_grad()
    def forward(self, x):
        # x: [batch, tokens, size / tensor-parallel ranks]
        dtype = x.dtype
        x = x.float()
        norm_x = torch.mean(x * x, dim=self.dim, keepdim=True)  # BUG: mean over this rank's slice
        x_normed = (x * torch.rsqrt(norm_x + self.eps)).to(dtype)
        if self.add_unit_offset:
            return x_normed * (1 + self.weight)
        return x_normed * self.weight
