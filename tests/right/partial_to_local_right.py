# Partial on the way: completed by hand, scaled, or added
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard


def completed(x, w, mesh):
    x = DTensor.from_local(x, mesh, [Shard(-1)])
    w = DTensor.from_local(w, mesh, [Shard(0)])
    y = torch.matmul(x, w).to_local()
    dist.all_reduce(y, group=mesh.get_group())
    return F.gelu(y)


def scattered(x, w, mesh):
    x = DTensor.from_local(x, mesh, [Shard(-1)])
    w = DTensor.from_local(w, mesh, [Shard(0)])
    y = torch.matmul(x, w).to_local()
    y = y / 8 + y * 0.5
    return DTensor.from_local(y, mesh, [Partial()]).redistribute(placements=[Shard(0)]).to_local()


def loss_of(x, mesh):
    x = DTensor.from_local(x, mesh, [Shard(0)])
    loss = x.sum()
    value = loss.to_local().item()
    return loss.full_tensor(), value


def norm_of(x, mesh):
    x = DTensor.from_local(x, mesh, [Shard(0)])
    sq = (x * x).sum().to_local()
    dist.all_reduce(sq, group=mesh.get_group())
    return sq.sqrt()


def averaged(x, mesh):
    x = DTensor.from_local(x, mesh, [Partial("avg")])
    return F.relu(x.to_local())
