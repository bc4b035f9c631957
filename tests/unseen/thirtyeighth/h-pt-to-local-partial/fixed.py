"""Row-parallel feed-forward whose pending sum is completed by the caller."""
# thread: pytorch/pytorch#172932
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor


class ShardedFeedForward(nn.Module):
    def __init__(self, dim, hidden_dim, mesh: DeviceMesh):
        super().__init__()
        self.mesh = mesh
        w1 = torch.empty(hidden_dim, dim, device="cuda")
        w2 = torch.empty(dim, hidden_dim, device="cuda")
        nn.init.kaiming_uniform_(w1, a=5**0.5)
        nn.init.kaiming_uniform_(w2, a=5**0.5)
        self.w1 = nn.Parameter(distribute_tensor(w1, mesh, [Shard(0)]))
        self.w2 = nn.Parameter(distribute_tensor(w2, mesh, [Shard(1)]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x is the same on every rank of the mesh; the result is this rank's summand."""
        x = DTensor.from_local(x, self.mesh, [Replicate()], run_check=False)
        out = F.linear(F.gelu(F.linear(x, self.w1)), self.w2)
        if not out.placements[0].is_partial():
            out = out.redistribute(placements=[Partial()])
        return out.to_local(grad_placements=[Replicate()])


class ParallelBlock(nn.Module):
    """Attention and feed-forward branches share a single reduction."""

    def __init__(self, attention, feed_forward: ShardedFeedForward, norm, mesh: DeviceMesh):
        super().__init__()
        self.attention, self.feed_forward, self.norm = attention, feed_forward, norm
        self.mesh = mesh

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        # summands of this rank; the attention branch returns a plain tensor too
        out = self.attention(h) + self.feed_forward(h)
        out = DTensor.from_local(out, self.mesh, [Partial()], run_check=False)
        # the backward of from_local hands the summed output's gradient to every rank
        out = out.redistribute(placements=[Replicate()])
        return x + out.to_local(grad_placements=[Replicate()])
