import torch
import torch.distributed._functional_collectives as funcol
from torch.distributed.fsdp import fully_shard


def newton_schulz(g, mesh):
    sq = funcol.all_reduce(g.square().sum(), "sum", mesh)
    x = g / (sq.sqrt() + 1e-7)
    for _ in range(5):
        b = funcol.all_reduce(x.T @ x, "sum", mesh)
        x = 1.5 * x - 0.5 * x @ b
    return x


def step(p, buf, lr):
    p.to_local().add_(newton_schulz(buf.to_local(), p.device_mesh), alpha=-lr)


def build(model):
    for block in model.layers:
        fully_shard(block)
