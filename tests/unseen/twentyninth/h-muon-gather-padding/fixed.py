"""Muon: every rank orthogonalises its share of the matrices, the results are gathered."""
import torch
import torch.distributed as dist


def zeropower_via_newtonschulz5(G, steps: int):
    a, b, c = (3.4445, -4.7750, 2.0315)
    X = G.bfloat16()
    if G.size(-2) > G.size(-1):
        X = X.mT
    X = X / (X.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        A = X @ X.mT
        B = b * A + c * A @ A
        X = a * X + B @ X
    return X.mT if G.size(-2) > G.size(-1) else X


class Muon(torch.optim.Optimizer):
    """Gradients are averaged over the ranks before the step."""

    def __init__(self, params, lr=0.02, weight_decay=0.0, momentum=0.95):
        by_shape = {}
        for p in params:
            by_shape.setdefault(tuple(p.shape), []).append(p)
        groups = [{"params": ps} for ps in by_shape.values()]
        super().__init__(groups, dict(lr=lr, weight_decay=weight_decay, momentum=momentum))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            params = group["params"]
            params_pad = params + [torch.empty_like(params[-1])] * (-len(params) % dist.get_world_size())
            for base_i in range(len(params))[:: dist.get_world_size()]:
                if base_i + dist.get_rank() < len(params):
                    p = params[base_i + dist.get_rank()]
                    state = self.state[p]
                    if len(state) == 0:
                        state["momentum_buffer"] = torch.zeros_like(p)
                    state["momentum_buffer"].lerp_(p.grad, 1 - group["momentum"])
                    update = p.grad.lerp(state["momentum_buffer"], group["momentum"])
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.add_(zeropower_via_newtonschulz5(update, steps=5).to(p.dtype), alpha=-group["lr"])
                dist.all_gather(
                    params_pad[base_i : base_i + dist.get_world_size()],
                    params_pad[base_i + dist.get_rank()].clone(),
                )
