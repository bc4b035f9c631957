"""DTensor by hand: column then row, gradients of the replicated input placed as a pending sum."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor


class LocalMLP(nn.Module):
    def __init__(self, dim, inner, mesh: DeviceMesh):
        super().__init__()
        self.mesh = mesh
        up = torch.empty(inner, dim)
        down = torch.empty(dim, inner)
        nn.init.normal_(up, std=0.02)
        nn.init.normal_(down, std=0.02)
        self.up = nn.Parameter(distribute_tensor(up, mesh, [Shard(0)]))
        self.down = nn.Parameter(distribute_tensor(down, mesh, [Shard(1)]))
        self.scale = nn.Parameter(distribute_tensor(torch.ones(dim), mesh, [Replicate()]))

    def forward(self, x: DTensor) -> DTensor:
        x = x.redistribute(placements=[Replicate()])
        local = x.to_local(grad_placements=[Partial()])
        scale = self.scale.to_local(grad_placements=[Partial()])
        h = F.gelu(F.linear(local * scale, self.up.to_local()))
        out = F.linear(h, self.down.to_local())
        return DTensor.from_local(out, self.mesh, [Partial()]).redistribute(placements=[Shard(1)])


def norm_for_log(model):
    with torch.no_grad():
        squares = [p.grad.full_tensor().float().pow(2).sum() for p in model.parameters()]
    return torch.stack(squares).sum().sqrt().item()


def step(model, x, target, optimizer):
    out = model(x).full_tensor()
    loss = F.mse_loss(out, target)
    loss.backward()
    norm = norm_for_log(model)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item(), norm
