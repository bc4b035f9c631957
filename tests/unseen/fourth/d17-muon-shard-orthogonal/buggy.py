"""Muon over FSDP2 parameters: the momentum must be whole to be made orthogonal."""
import torch
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor


def zeropower_via_newtonschulz5(G, steps=5, eps=1e-7):
    a, b, c = 3.4445, -4.7750, 2.0315
    X = G.bfloat16()
    X = X / (X.norm() + eps)
    transposed = G.size(0) > G.size(1)
    if transposed:
        X = X.T
    for _ in range(steps):
        A = X @ X.T
        X = a * X + (b * A + c * A @ A) @ X
    return (X.T if transposed else X).to(G.dtype)


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95, ns_steps=5):
        super().__init__(params, dict(lr=lr, momentum=momentum, ns_steps=ns_steps))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(p.grad)
                buf = state["momentum_buffer"]
                buf.lerp_(p.grad, 1 - group["momentum"])
                g = p.grad.lerp(buf, group["momentum"])
                if isinstance(g, DTensor):
                    u = zeropower_via_newtonschulz5(g.to_local(), steps=group["ns_steps"])  # BUG
                    u = DTensor.from_local(u, g.device_mesh, g.placements, run_check=False)
                else:
                    u = zeropower_via_newtonschulz5(g, steps=group["ns_steps"])
                p.add_(u, alpha=-group["lr"])


def build(model, mesh, lr):
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    matrices = [p for p in model.layers.parameters() if p.ndim == 2]
    return model, Muon(matrices, lr=lr)
