"""Muon with the parameters of a group updated by the ranks in turn.

KellerJordan/Muon f0d3600b8bd8, muon.py
"""
import torch
import torch.distributed as dist


def muon_update(grad, momentum, beta=0.95):
    momentum.lerp_(grad, 1 - beta)
    update = grad.lerp(momentum, beta)
    return update / (update.norm() + 1e-7)


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, weight_decay=0, momentum=0.95):
        defaults = dict(lr=lr, weight_decay=weight_decay, momentum=momentum)
        assert isinstance(params, list) and len(params) >= 1 and isinstance(params[0], torch.nn.Parameter)
        params = sorted(params, key=lambda x: x.size(), reverse=True)
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            params = group["params"]
            params_pad = params + [torch.empty_like(params[-1])] * (len(params) % dist.get_world_size())  # BUG
            for base_i in range(len(params))[::dist.get_world_size()]:
                if base_i + dist.get_rank() < len(params):
                    p = params[base_i + dist.get_rank()]
                    state = self.state[p]
                    if len(state) == 0:
                        state["momentum_buffer"] = torch.zeros_like(p)
                    update = muon_update(p.grad, state["momentum_buffer"], beta=group["momentum"])
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.add_(update, alpha=-group["lr"])
                dist.all_gather(
                    params_pad[base_i:base_i + dist.get_world_size()], params_pad[base_i + dist.get_rank()]
                )
