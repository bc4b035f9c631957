# Reduced from Moonlight's Muon under FSDP2 (MoonshotAI/Moonlight issue 27, read).
# Muon orthogonalises the momentum matrix. fully_shard keeps parameters, gradients and momentum as
# DTensors with rows spread over the ranks.
# What happens: each rank orthogonalises its own rows (an empty part gives inf), the update is not
# the one of the whole matrix and changes with the number of ranks.
import torch
from torch.distributed.tensor import DTensor


@torch.compile
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


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, wd=0.1, momentum=0.95, ns_steps=5):
        super().__init__(params, dict(lr=lr, wd=wd, momentum=momentum, ns_steps=ns_steps))

    def adjust_lr_for_muon(self, lr, param_shape):
        A, B = param_shape[:2]
        return lr * 0.2 * max(A, B) ** 0.5

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
                buf.mul_(group["momentum"]).add_(p.grad)
                g = p.grad.add(buf, alpha=group["momentum"])
                if isinstance(g, DTensor):
                    local = zeropower_via_newtonschulz5(g.to_local(), steps=group["ns_steps"])  # BUG
                    u = DTensor.from_local(
                        local, g.device_mesh, g.placements, shape=g.shape, stride=g.stride()
                    )
                else:
                    u = zeropower_via_newtonschulz5(g, steps=group["ns_steps"])
                p.mul_(1 - group["lr"] * group["wd"])
                p.add_(u.to(p.dtype), alpha=-self.adjust_lr_for_muon(group["lr"], p.shape))
