"""LoRA beside a column-wise sharded DTensor projection."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor


class ColwiseLoRA(nn.Module):
    def __init__(self, base, rank, alpha, mesh):
        super().__init__()
        self.base = base  # weight is a DTensor with Shard(0) on the tp mesh, no bias
        self.base.weight.requires_grad = False
        out_features, in_features = base.weight.shape
        a = torch.randn(rank, in_features, device=mesh.device_type) / rank
        b = torch.zeros(out_features, rank, device=mesh.device_type)
        self.lora_a = nn.Parameter(distribute_tensor(a, mesh, [Replicate()]))
        self.lora_b = nn.Parameter(distribute_tensor(b, mesh, [Shard(0)]))
        self.scaling = alpha / rank

    def forward(self, x: DTensor) -> torch.Tensor:
        # x: Replicate on the tp mesh
        out = self.base(x).to_local()
        x_local = x.to_local(grad_placements=[Partial()])
        a = self.lora_a.to_local(grad_placements=[Partial()])
        b = self.lora_b.to_local()  # output rows of this rank
        delta = F.linear(F.linear(x_local, a), b)
        return out + delta * self.scaling
