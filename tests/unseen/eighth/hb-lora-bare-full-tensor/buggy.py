"""LoRA linear whose adapters are DTensors sharded over the data-parallel mesh, gathered for the forward pass."""
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard, distribute_tensor


class ShardedLoRALinear(nn.Module):
    """The loss is divided by the global token count, so gradients add up over the mesh."""

    def __init__(self, base: nn.Linear, rank, alpha, dp_mesh):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.scaling = alpha / rank
        a = torch.empty(rank, base.in_features, device=base.weight.device)
        nn.init.kaiming_uniform_(a, a=math.sqrt(5))
        b = torch.zeros(base.out_features, rank, device=base.weight.device)
        self.lora_a = nn.Parameter(distribute_tensor(a, dp_mesh, [Shard(1)]))
        self.lora_b = nn.Parameter(distribute_tensor(b, dp_mesh, [Shard(0)]))

    @staticmethod
    def _gather(param):
        return param.full_tensor()  # BUG

    def forward(self, x):
        # x: plain tensor, this data rank's micro-batch
        a, b = self._gather(self.lora_a), self._gather(self.lora_b)
        delta = F.linear(F.linear(x, a.to(x.dtype)), b.to(x.dtype))
        return self.base(x) + self.scaling * delta


def wrap(model, names, rank, alpha, dp_mesh):
    for name, mod in list(model.named_modules()):
        if isinstance(mod, nn.Linear) and name.rsplit(".", 1)[-1] in names:
            model.set_submodule(name, ShardedLoRALinear(mod, rank, alpha, dp_mesh))
    return [p for n, p in model.named_parameters() if "lora_" in n]
