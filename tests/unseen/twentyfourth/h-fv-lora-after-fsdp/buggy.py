"""LoRA adapters for a transformer that is already sharded.

After hao-ai-lab/FastVideo PR #1666 (modular training stack, LoRA injection).
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, distribute_tensor


def replicated_parameter(tensor, mesh):
    """The value of the first rank on each rank of the mesh."""
    return nn.Parameter(distribute_tensor(tensor, mesh, [Replicate()] * mesh.ndim))


class LoRALinear(nn.Module):
    def __init__(self, base, rank, alpha, mesh):
        super().__init__()
        self.base, self.scale = base, alpha / rank
        device = mesh.device_type
        lora_a = torch.empty(rank, base.in_features, device=device)
        nn.init.kaiming_uniform_(lora_a, a=math.sqrt(5))
        self.lora_A = replicated_parameter(lora_a, mesh)
        self.lora_B = replicated_parameter(torch.zeros(base.out_features, rank, device=device), mesh)

    def forward(self, x):
        delta = F.linear(F.linear(x, self.lora_A.to_local()), self.lora_B.to_local())
        return self.base(x) + self.scale * delta


def inject_lora(model, targets, rank, alpha, mesh):
    model.requires_grad_(False)
    trainable = []
    for name, module in list(model.named_modules()):
        if not isinstance(module, nn.Linear) or name.split(".")[-1] not in targets:
            continue
        layer = LoRALinear(module, rank, alpha, mesh)  # BUG: not managed by fully_shard, no reduction on the mesh
        parent = model.get_submodule(name.rpartition(".")[0])
        setattr(parent, name.rpartition(".")[2], layer)
        trainable += [layer.lora_A, layer.lora_B]
    return trainable


def build(model, mesh, lora_cfg, lr):
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    params = inject_lora(model, lora_cfg.targets, lora_cfg.rank, lora_cfg.alpha, mesh)
    return torch.optim.AdamW(params, lr=lr)


def train_step(model, batches, loss_fn, optimizer):
    # each rank of the mesh has its own samples
    optimizer.zero_grad()
    for batch in batches:
        loss = loss_fn(model(batch["latents"], batch["timestep"], batch["text"]), batch["target"])
        (loss / len(batches)).backward()
    optimizer.step()
