import torch
import torch.nn as nn
from torch.distributed.tensor import DTensor, Partial


class OutProjection(nn.Module):
    """heads: Shard(1), this rank's heads; one small matrix for each head, then rows of the output weight."""

    def __init__(self, mix, out):
        super().__init__()
        self.mix = nn.Parameter(mix)
        self.out = nn.Parameter(out)

    def forward(self, heads: DTensor):
        h = heads.to_local()
        h = torch.matmul(h, self.mix.to_local())
        h = h.transpose(1, 2).flatten(2)
        y = torch.matmul(h, self.out.to_local())
        return DTensor.from_local(y, heads.device_mesh, [Partial()], run_check=False)
