# MoonshotAI/Moonlight issue 27
"""Muon optimizer for parameters sharded by FSDP2."""
import torch
from torch.distributed.tensor import DTensor, distribute_tensor


def zeropower_via_newtonschulz5(G, steps):
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


def to_local(x):
    if isinstance(x, DTensor):
        meta = dict(device_mesh=x.device_mesh, placements=x.placements)
        return x.full_tensor(), meta
    return x, None


def to_dist(x, meta):
    if meta is None:
        return x
    return distribute_tensor(x, **meta)


class Muon(torch.optim.Optimizer):
    def __init__(self, muon_params, lr=1e-3, wd=0.1, momentum=0.95, ns_steps=5):
        super().__init__(muon_params, dict(lr=lr, wd=wd, momentum=momentum, ns_steps=ns_steps))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:  # two-dimensional weights
                if p.grad is None:
                    continue
                state = self.state[p]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(p.grad)
                buf = state["momentum_buffer"]
                buf.mul_(group["momentum"]).add_(p.grad)
                g, meta = to_local(p.grad.add(buf, alpha=group["momentum"]))
                u = to_dist(zeropower_via_newtonschulz5(g, steps=group["ns_steps"]).to(p.dtype), meta)
                adjusted_lr = group["lr"] * 0.2 * max(p.shape) ** 0.5
                p.mul_(1 - group["lr"] * group["wd"])
                p.add_(u, alpha=-adjusted_lr)
