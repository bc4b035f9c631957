"""Muon for a model whose linears are split by automatic tensor parallelism."""
# Source: deepspeedai/DeepSpeed issue 8437 (confirmed from the thread)
import torch
import torch.distributed as dist
import torch.nn as nn


class LinearLayer(nn.Linear):
    """Column parallel replacement of nn.Linear: output features are split."""

    def __init__(self, full: nn.Linear, tp_group):
        world, rank = dist.get_world_size(tp_group), dist.get_rank(tp_group)
        super().__init__(full.in_features, full.out_features // world, bias=False)
        self.weight.data.copy_(full.weight.data.chunk(world, dim=0)[rank])
        self.weight.tensor_model_parallel, self.weight.partition_dim = True, 0


def zeropower_via_newtonschulz5(g, steps=5, eps=1e-7):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16()
    if g.size(0) > g.size(1):
        x = x.t()
    x = x / (x.norm() + eps)
    for _ in range(steps):
        gram = x @ x.t()
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.t() if g.size(0) > g.size(1) else x


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95, nesterov=True, tp_group=None):
        super().__init__(params, dict(lr=lr, momentum=momentum, nesterov=nesterov))
        self.tp_group = tp_group

    def _orthogonalize(self, p, update):
        if self.tp_group is None or not getattr(p, "tensor_model_parallel", False):
            return zeropower_via_newtonschulz5(update)
        parts = [torch.empty_like(update) for _ in range(dist.get_world_size(self.tp_group))]
        dist.all_gather(parts, update.contiguous(), group=self.tp_group)
        full = zeropower_via_newtonschulz5(torch.cat(parts, dim=p.partition_dim))
        return full.chunk(len(parts), dim=p.partition_dim)[dist.get_rank(self.tp_group)]

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                buf = state.setdefault("momentum_buffer", torch.zeros_like(p.grad))
                buf.lerp_(p.grad, 1 - group["momentum"])
                update = p.grad.lerp(buf, group["momentum"]) if group["nesterov"] else buf
                update = self._orthogonalize(p, update)
                p.add_(update.to(p.dtype), alpha=-group["lr"])
