"""Muon for parameters that FSDP2 shards.

Source: MoonshotAI/Moonlight issue #27.
"""
import torch
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor


def zeropower_via_newtonschulz5(G, steps=5):
    a, b, c = (3.4445, -4.7750, 2.0315)
    X = G.bfloat16()
    if G.size(0) > G.size(1):
        X = X.T
    X = X / (X.norm() + 1e-7)
    for _ in range(steps):
        A = X @ X.T
        B = b * A + c * A @ A
        X = a * X + B @ X
    if G.size(0) > G.size(1):
        X = X.T
    return X


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, momentum=0.95, weight_decay=0.1):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr = group["lr"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(p.grad)
                buf = state["momentum_buffer"]
                buf.mul_(group["momentum"]).add_(p.grad)
                u = zeropower_via_newtonschulz5(buf.full_tensor())
                u = distribute_tensor(u, p.device_mesh, p.placements)
                p.mul_(1 - lr * group["weight_decay"])
                scale = 0.2 * max(p.size(0), p.size(1)) ** 0.5
                p.to_local().add_(u.to_local().to(p.dtype), alpha=-lr * scale)


def build(model, mesh):
    for block in model.layers:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    matrices = [p for n, p in model.layers.named_parameters() if p.ndim == 2]
    assert all(isinstance(p, DTensor) for p in matrices)
    return model, Muon(matrices)
