"""Local parts and whole tensors of DTensors: with gradient placements where ranks differ, plain where nothing differs or no gradient flows."""

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
import torch.nn as nn
import torch.nn.functional as F


def all_sharded(x: DTensor, weight: DTensor):
    """Both are split along what is not contracted in the same way: each rank computes its own part."""
    out = F.linear(x.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()]), weight.to_local())
    return DTensor.from_local(out, weight.device_mesh, [Shard(-1)], run_check=False)


@torch.no_grad()
def adamw_step(params, lr):
    for p in params:
        grad = p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad
        local = p.to_local() if isinstance(p, DTensor) else p
        local.add_(grad, alpha=-lr)


def norm_of(model):
    return {n: p.detach().full_tensor().norm().item() for n, p in model.named_parameters() if isinstance(p, DTensor)}


def muon(grad: DTensor):
    with torch.no_grad():
        full = grad.full_tensor()
        u, _, v = torch.linalg.svd(full, full_matrices=False)
        return DTensor.from_local(u @ v, grad.device_mesh, [Replicate()], run_check=False).redistribute(placements=grad.placements)


def fused_loss(hidden, weight: DTensor, labels):
    whole = weight.full_tensor(grad_placements=[Partial("avg") for _ in weight.placements])
    return F.cross_entropy(F.linear(hidden, whole).float(), labels)


@torch.inference_mode()
def generate(model, ids, head: DTensor):
    return (model(ids) @ head.full_tensor().t()).argmax(-1)


class Scale(nn.Module):
    """Input and weight are both whole on every rank, and so is what follows: the default placements are right."""

    def __init__(self, weight: DTensor):
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x):
        # x: the same on every rank of the mesh
        return x * self.weight.to_local()
